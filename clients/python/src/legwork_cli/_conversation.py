"""One conversation in MCP: requests go out, answers and questions come in.

It knows no sockets and no pipes: a transport sends messages, and hands in those that it receives,
from whichever thread. A call is a `concurrent.futures.Future`, so that threads and event loops
wait for it in their own ways.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from concurrent.futures import Future
from typing import Any, Callable, Dict, Mapping, Optional, Protocol, Tuple

from ._errors import Closed, ConnectionLost, LegworkError, ProtocolError
from ._model import Answer, Decision, Json, Question, Reply, text_of

log = logging.getLogger("legwork_cli")

#: The revision of MCP that the library speaks.
PROTOCOL_VERSION = "2025-11-25"

#: Asks for the envelope of a result beside its text.
STRUCTURED = "legwork/structured"

#: Has the fields of a question beside its text.
QUESTION = "legwork/question"

#: A call hears something every five seconds. After this long without a word nobody is there.
SILENCE_MAX = 60.0

#: Takes a question, and the way to its answer; must not block.
Asker = Callable[[Question, Callable[[Optional[Reply]], None]], None]


class Transport(Protocol):
    """Carries messages."""

    def send(self, message: Json) -> None:
        """Sends soon, and does not block. Raises ConnectionLost if nothing can be sent."""

    def close(self) -> None:
        """Ends the connection, and everything that belongs to it. May be called again."""


class Conversation:
    """Requests that are under way, and who waits for them."""

    def __init__(self, name: str, asker: Optional[Asker]) -> None:
        self._name = name
        self._asker = asker
        self._ids = itertools.count(1)
        self._lock = threading.Lock()
        self._pending: Dict[int, Future[Json]] = {}
        self._over: Optional[LegworkError] = None
        self._heard = time.monotonic()
        self._transport: Optional[Transport] = None
        self.instructions = ""
        self.server_version = ""

    def hello(self) -> Json:
        """The parameters of the first request."""
        capabilities: Json = {"elicitation": {}} if self._asker else {}
        client = {"name": self._name, "version": "1"}
        version = PROTOCOL_VERSION
        return {"protocolVersion": version, "capabilities": capabilities, "clientInfo": client}

    def welcomed(self, result: Mapping[str, Any]) -> None:
        """Takes the answer to the first request."""
        if result.get("protocolVersion") != PROTOCOL_VERSION:
            raise ProtocolError(f"the server speaks MCP {result.get('protocolVersion')}")
        self.instructions = text_of(result.get("instructions"))
        self.server_version = text_of((result.get("serverInfo") or {}).get("version"))

    def over(self, transport: Transport) -> None:
        """Speaks over this transport."""
        self._transport = transport

    def request(self, method: str, params: Json) -> Tuple[int, Future[Json]]:
        """Sends a request. Its future fails when the connection does."""
        number = next(self._ids)
        future: Future[Json] = Future()
        with self._lock:
            if self._over is not None:
                raise self._over
            self._pending[number] = future
            if len(self._pending) == 1:
                self._heard = time.monotonic()
        # Whoever gives a future up tells the server, which stops the command.
        future.add_done_callback(lambda done: self._given_up(number) if done.cancelled() else None)
        try:
            self._send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        except LegworkError:
            self._take(number)
            raise
        return number, future

    def call(self, tool: str, arguments: Mapping[str, Any]) -> Future[Json]:
        """Calls a tool; `answer_of` reads the result."""
        # Progress tells that a long call is alive; without it the server cuts calls short.
        meta = {STRUCTURED: True, "progressToken": next(self._ids)}
        params = {"name": tool, "arguments": dict(arguments), "_meta": meta}
        return self.request("tools/call", params)[1]

    def notify(self, method: str, params: Optional[Json] = None) -> None:
        message: Json = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            message["params"] = params
        self._send(message)

    def silence(self) -> float:
        """For how many seconds nothing was heard, if somebody waits."""
        return time.monotonic() - self._heard

    def receive(self, message: Mapping[str, Any]) -> None:
        """Takes a message from the transport."""
        self._heard = time.monotonic()
        method = message.get("method")
        if method is None:
            self._answered(message)
        elif "id" in message:
            self._asked(str(method), message)
        # The library uses no notification: progress was heard, and that is all it is for.

    def fail(self, number: int, error: LegworkError) -> None:
        """One request has failed."""
        future = self._take(number)
        if future is not None and future.set_running_or_notify_cancel():
            future.set_exception(error)

    def lost(self, error: LegworkError) -> None:
        """Nothing can be sent or received any more; the first reason stays."""
        with self._lock:
            if self._over is not None:
                return
            self._over = error
            pending, self._pending = list(self._pending.values()), {}
        for future in pending:
            if future.set_running_or_notify_cancel():
                future.set_exception(error)

    def close(self) -> None:
        """Ends the conversation; calls under way fail. May be called again."""
        self.lost(Closed("the connection was closed"))
        if self._transport is not None:
            self._transport.close()

    def _send(self, message: Json) -> None:
        if self._transport is None:
            raise ConnectionLost("there is no connection")
        self._transport.send(message)

    def _take(self, number: int) -> Optional[Future[Json]]:
        with self._lock:
            return self._pending.pop(number, None)

    def _given_up(self, number: int) -> None:
        if self._take(number) is not None:
            try:
                self.notify("notifications/cancelled", {"requestId": number})
            except LegworkError:
                pass  # Nobody is there who could go on with it.

    def _answered(self, message: Mapping[str, Any]) -> None:
        number = message.get("id")
        future = self._take(number) if isinstance(number, int) else None
        if future is None or not future.set_running_or_notify_cancel():
            return
        error = message.get("error")
        if isinstance(error, dict):
            text = text_of(error.get("message")) or "no message"
            future.set_exception(ProtocolError(text, details={"code": error.get("code")}))
        else:
            result = message.get("result")
            future.set_result(result if isinstance(result, dict) else {})

    def _asked(self, method: str, message: Mapping[str, Any]) -> None:
        number = message["id"]
        if method == "ping":
            self._reply(number, result={})
        elif method == "elicitation/create" and self._asker is not None:
            question = question_of(message.get("params") or {})
            self._asker(question, lambda reply: self._reply(number, result=_elicited(reply)))
        else:
            error = {"code": -32601, "message": f"there is no method `{method}`"}
            self._reply(number, error=error)

    def _reply(self, number: Any, **outcome: Any) -> None:
        try:
            self._send({"jsonrpc": "2.0", "id": number, **outcome})
        except LegworkError:
            pass  # Nobody waits for it any more.


def question_of(params: Mapping[str, Any]) -> Question:
    data = (params.get("_meta") or {}).get(QUESTION)
    data = data if isinstance(data, dict) else {}
    schema = params.get("requestedSchema") or {}
    names = ((schema.get("properties") or {}).get("decision") or {}).get("enum") or []
    known = {decision.value: decision for decision in Decision}
    return Question(
        text=text_of(params.get("message")),
        replies=tuple(known[name] for name in names if name in known),
        approval_id=text_of(data.get("approval_id")),
        command=text_of(data.get("command")),
        reason=text_of(data.get("reason")),
        cause=text_of(data.get("cause")),
        workdir=text_of(data.get("workdir")),
        sandbox=text_of(data.get("sandbox")),
        data=data,
    )


def _elicited(reply: Optional[Reply]) -> Json:
    if reply is None:
        return {"action": "cancel"}
    content = {"decision": reply.decision.value}
    if reply.note:
        content["note"] = reply.note
    return {"action": "accept", "content": content}


def answer_of(tool: str, result: Mapping[str, Any]) -> Answer:
    """The answer in the result of a call."""
    envelope = result.get("structuredContent")
    if not isinstance(envelope, dict):
        raise ProtocolError(
            "the result has no data: the program is older than this library",
            recovery_hint="update the program",
        )
    texts = [text_of(it.get("text")) for it in result.get("content") or [] if isinstance(it, dict)]
    return Answer(tool, "\n".join(texts), bool(result.get("isError", False)), envelope)
