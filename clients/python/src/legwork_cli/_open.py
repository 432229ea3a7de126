"""Opens a conversation with a program of its own, or with a server."""

from __future__ import annotations

import os
import ssl
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from typing import List, Mapping, Optional, Sequence

from ._conversation import SILENCE_MAX, Asker, Conversation
from ._errors import ConnectionLost
from ._http import HttpTransport
from ._model import Json
from ._program import PathLike, find_program
from ._stdio import StdioTransport


@dataclass(frozen=True)
class Settings:
    """What a connection is made from."""

    workspace: Optional[PathLike] = None
    url: Optional[str] = None
    token: Optional[str] = None
    ssl_context: Optional[ssl.SSLContext] = None
    program: Optional[PathLike] = None
    state: Optional[PathLike] = None
    ask: Optional[str] = None
    sandbox: Optional[str] = None
    trust: Optional[str] = None
    policy: Sequence[PathLike] = ()
    tools: Optional[Sequence[str]] = None
    env: Optional[Mapping[str, str]] = None
    name: str = "legwork-cli-python"

    def __post_init__(self) -> None:
        if self.url is None:
            if self.token is not None:
                raise ValueError("`token` goes with `url`")
            return
        if self.token is None:
            raise ValueError("a server at a `url` needs a `token`: `legwork token add` makes one")
        own = ("workspace", "program", "state", "ask", "sandbox", "trust", "policy", "tools", "env")
        given = [name for name in own if getattr(self, name)]
        if given:
            raise ValueError(f"`{given[0]}` does not go with `url`: it is the server's choice")

    def command(self) -> List[str]:
        """The program with its options."""
        command = [find_program(self.program), "mcp"]
        options = [("--workspace", self.workspace), ("--state", self.state), ("--ask", self.ask)]
        options += [("--sandbox", self.sandbox), ("--trust", self.trust)]
        options += [("--policy", file) for file in self.policy]
        options += [("--tools", ",".join(self.tools) if self.tools else None)]
        for option, value in options:
            if value is not None:
                command += [option, os.fspath(value)]
        return command


def open_conversation(settings: Settings, asker: Optional[Asker]) -> Conversation:
    """Connects; raises if that cannot be done."""
    conversation = Conversation(settings.name, asker)
    try:
        if settings.url is not None:
            token, context = settings.token or "", settings.ssl_context
            http = HttpTransport(conversation, settings.url, token, context)
            conversation.over(http)
            http.open()
        else:
            command, env = settings.command(), settings.env
            conversation.over(StdioTransport(conversation, command, env))
            _, hello = conversation.request("initialize", conversation.hello())
            conversation.welcomed(_within(hello))
            conversation.notify("notifications/initialized")
    except BaseException:
        conversation.close()
        raise
    return conversation


def _within(future: Future[Json]) -> Json:
    try:
        return future.result(SILENCE_MAX)
    except FutureTimeout as error:
        raise ConnectionLost("the program does not answer") from error
