"""The transport to a `legwork serve`, over HTTP: MCP's Streamable HTTP, with sessions.

Each request has a thread and a connection of its own while it is under way; idle connections are
kept. A connection that breaks during a call is resumed where it ended (Last-Event-ID).
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
import time
from typing import Dict, Iterator, List, Optional, Set, Tuple
from urllib.parse import urlsplit

from ._conversation import PROTOCOL_VERSION, SILENCE_MAX, Conversation
from ._errors import Closed, ConnectionLost, LegworkError, ProtocolError, Unauthorized, from_data
from ._model import Json, text_of

#: Idle connections that are kept, and for how long: the server closes them after 30 s.
IDLE_MAX = 8
IDLE_SECONDS = 20.0

#: How often, and at which distance, a broken call is looked for again.
RESUMPTIONS_MAX = 5
RESUMPTION_SECONDS = 0.2

_Broken = (OSError, http.client.HTTPException)


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class HttpTransport:
    def __init__(
        self,
        conversation: Conversation,
        url: str,
        token: str,
        context: Optional[ssl.SSLContext],
    ) -> None:
        self._conversation = conversation
        self._url, self._token, self._ssl = url, token, context
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https", "unix"):
            raise ValueError(f"{url!r}: the URL must begin with http:, https: or unix:")
        path = parts.path.rstrip("/") if parts.scheme != "unix" else ""
        self._path = path if path.endswith("/mcp") else f"{path}/mcp"
        self._parts = parts
        self._lock = threading.Lock()
        self._idle: List[Tuple[float, http.client.HTTPConnection]] = []
        self._busy: Set[http.client.HTTPConnection] = set()
        self._threads: Set[threading.Thread] = set()
        self._session: Optional[str] = None
        self._opening = threading.Lock()
        self._is_closed = False

    def open(self) -> None:
        """Begins a session. Raises if there is no server, or it does not accept the token."""
        hello = {"jsonrpc": "2.0", "id": 0, "method": "initialize"}
        request = {**hello, "params": self._conversation.hello()}
        connection, response = self._exchange(json.dumps(request).encode(), None)
        messages = [message for message, _ in _messages(response)]
        session = response.getheader("mcp-session-id")
        self._keep(connection, response)
        result = next((it["result"] for it in messages if isinstance(it.get("result"), dict)), None)
        if session is None or result is None:
            raise ProtocolError(f"{self._url} is not a `legwork serve`")
        self._conversation.welcomed(result)
        self._session = session
        self._post({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def send(self, message: Json) -> None:
        thread = threading.Thread(
            target=self._carry, args=(message,), name="legwork-http", daemon=True
        )
        with self._lock:
            if self._is_closed:
                raise Closed("the connection was closed")
            self._threads.add(thread)
        thread.start()

    def close(self) -> None:
        with self._lock:
            was_closed, self._is_closed = self._is_closed, True
            session, self._session = self._session, None
            busy = list(self._busy)
            threads = [it for it in self._threads if it is not threading.current_thread()]
        if not was_closed and session is not None:
            # Commands that were waited for end with the session.
            try:
                connection, response = self._exchange(None, session, method="DELETE")
                self._keep(connection, response)
            except (LegworkError, *_Broken):
                pass
        for connection in busy:
            _cut(connection)
        for thread in threads:
            thread.join()
        with self._lock:
            idle, self._idle = self._idle, []
        for _, connection in idle:
            connection.close()

    def _carry(self, message: Json) -> None:
        """A thread's work: sends a message, and hands in what comes back for it."""
        number = message.get("id") if "method" in message else None
        try:
            self._post(message)
            error: LegworkError = ConnectionLost("the server answered without a result")
        except LegworkError as problem:
            error = problem
        except (ValueError, *_Broken) as problem:
            error = ConnectionLost(f"{self._url}: {problem}", retryable=True)
        finally:
            with self._lock:
                self._threads.discard(threading.current_thread())
        if isinstance(number, int):
            # Has no effect if the answer was there.
            self._conversation.fail(number, error)

    def _post(self, message: Json) -> None:
        body, session = json.dumps(message).encode(), self._session
        try:
            connection, response = self._exchange(body, session)
        except _SessionGone:
            # Nothing was done: the server has been started again, or was idle for long.
            self._renew(session)
            connection, response = self._exchange(body, self._session)
        number = message.get("id") if "method" in message else None
        self._hear(connection, response, number)

    def _renew(self, old: Optional[str]) -> None:
        with self._opening:
            if self._session == old:
                self.open()

    def _hear(
        self,
        connection: http.client.HTTPConnection,
        response: http.client.HTTPResponse,
        number: object,
    ) -> None:
        """Hands in messages until the answer to the request is among them."""
        last, resumptions = "", 0
        while True:
            try:
                for message, identity in _messages(response):
                    last, resumptions = identity or last, 0
                    self._conversation.receive(message)
                    if number is not None and message.get("id") == number:
                        if "method" not in message:
                            number = None
                self._keep(connection, response)
                if number is None or not last:
                    return
            except _Broken:
                self._drop(connection)
                if not last or self._is_closed:
                    raise
            resumptions += 1
            if resumptions > RESUMPTIONS_MAX:
                raise ConnectionLost("the connection broke, and the call was not found again")
            time.sleep(RESUMPTION_SECONDS if resumptions > 1 else 0)
            try:
                connection, response = self._exchange(None, self._session, last=last, method="GET")
            except _Broken:
                if resumptions == RESUMPTIONS_MAX:
                    raise

    def _exchange(
        self,
        body: Optional[bytes],
        session: Optional[str],
        *,
        method: str = "POST",
        last: str = "",
    ) -> Tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        headers: Dict[str, str] = {
            "Accept": "application/json, text/event-stream",
            "Content-Type": "application/json",
            "Authorization": f"Bearer {self._token}",
            "MCP-Protocol-Version": PROTOCOL_VERSION,
        }
        if session is not None:
            headers["Mcp-Session-Id"] = session
        if last:
            headers["Last-Event-ID"] = last
        connection = self._connection()
        try:
            connection.request(method, self._path, body, headers)
            response = connection.getresponse()
        except BaseException:
            self._drop(connection)
            raise
        if response.status >= 300:
            error = _refused(response, session is not None)
            self._drop(connection)
            raise error
        return connection, response

    def _connection(self) -> http.client.HTTPConnection:
        with self._lock:
            while self._idle:
                since, connection = self._idle.pop()
                # What the server closed is readable: an end. Nothing else is expected.
                if time.monotonic() - since < IDLE_SECONDS and not _is_readable(connection):
                    self._busy.add(connection)
                    return connection
                connection.close()
        parts, timeout = self._parts, SILENCE_MAX
        host, port = parts.hostname or "", parts.port
        if parts.scheme == "unix":
            connection = _UnixConnection(parts.path, timeout)
        elif parts.scheme == "https":
            secure = self._ssl or ssl.create_default_context()
            connection = http.client.HTTPSConnection(host, port, timeout=timeout, context=secure)
        else:
            connection = http.client.HTTPConnection(host, port, timeout=timeout)
        try:
            connection.connect()
        except OSError as error:
            raise ConnectionLost(f"{self._url}: {error}", retryable=True) from error
        with self._lock:
            self._busy.add(connection)
        return connection

    def _keep(
        self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse
    ) -> None:
        """A connection whose answer was read to its end is good for another."""
        with self._lock:
            self._busy.discard(connection)
            is_good = response.isclosed() and not response.will_close
            if is_good and not self._is_closed and len(self._idle) < IDLE_MAX:
                self._idle.append((time.monotonic(), connection))
                return
        connection.close()

    def _drop(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            self._busy.discard(connection)
        connection.close()


class _SessionGone(ConnectionLost):
    """The server does not know the session: the request was not looked at."""


def _refused(response: http.client.HTTPResponse, has_session: bool) -> LegworkError:
    body = response.read(65536)
    try:
        told = json.loads(body)["error"]
        kind, message = text_of(told.get("kind")), text_of(told.get("message"))
    except (ValueError, KeyError, TypeError, AttributeError):
        told, kind, message = None, "", body.decode(errors="replace").strip()[:500]
    if response.status == 404 and has_session:
        return _SessionGone("the session is over")
    if response.status in (401, 403):
        hint = text_of(told.get("recovery_hint")) if isinstance(told, dict) else ""
        return Unauthorized(message, kind=kind or None, recovery_hint=hint or None)
    if isinstance(told, dict) and kind:
        return from_data(told)
    return ProtocolError(f"HTTP {response.status}: {message}")


def _messages(response: http.client.HTTPResponse) -> Iterator[Tuple[Json, str]]:
    """The JSON-RPC messages of an answer, each with the id of its event."""
    kind = (response.getheader("content-type") or "").split(";")[0].strip()
    if kind != "text/event-stream":
        body = response.read()
        if body.strip():
            message = json.loads(body)
            if isinstance(message, dict):
                yield message, ""
        return
    data: List[str] = []
    identity = ""
    for raw in response:
        line = raw.decode().rstrip("\r\n")
        name, _, value = line.partition(":")
        value = value[1:] if value.startswith(" ") else value
        if name == "data":
            data.append(value)
        elif name == "id":
            identity = value
        elif not line:
            if "".join(data).strip():
                message = json.loads("\n".join(data))
                if isinstance(message, dict):
                    yield message, identity
            elif identity:
                # An event without data only says where to resume.
                yield {"method": "notifications/none"}, identity
            data = []


def _is_readable(connection: http.client.HTTPConnection) -> bool:
    try:
        connection.sock.settimeout(0)
        try:
            connection.sock.recv(1, socket.MSG_PEEK)
            return True
        except (BlockingIOError, ssl.SSLWantReadError):
            return False
        finally:
            connection.sock.settimeout(SILENCE_MAX)
    except (OSError, ValueError, AttributeError):
        return True


def _cut(connection: http.client.HTTPConnection) -> None:
    """Wakes the thread that reads from it."""
    try:
        connection.sock.shutdown(socket.SHUT_RDWR)
    except (OSError, AttributeError):
        pass
