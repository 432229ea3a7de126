"""The synchronous interface. All of it may be used from several threads at once."""

from __future__ import annotations

import concurrent.futures
import ssl
import threading
import weakref
from types import TracebackType
from typing import Any, Callable, Dict, Iterator, Mapping, Optional, Sequence, Tuple, Type, TypeVar

from . import _operations as operations
from ._conversation import SILENCE_MAX, Asker, answer_of, log
from ._errors import ConnectionLost
from ._model import (
    Answer,
    Json,
    Question,
    Replied,
    Reply,
    Result,
    Stopped,
    TaskStatus,
    Waited,
    reply_of,
)
from ._open import Settings, open_conversation
from ._operations import MAX_OUTPUT, Operation
from ._program import PathLike

T = TypeVar("T")

#: Decides about a command that has to be approved.
Approve = Callable[[Question], Replied]


class Legwork:
    """Runs commands: judged, sandboxed, supervised and recorded by the program `legwork`.

    Without a `url` it starts a program of its own (`legwork mcp`), which ends with `close()` or
    the `with` block. Commands that somebody waits for end with it; tasks that were started go on
    for ten minutes (`orphan_ttl_ms`), unless somebody returns to them.

    - `workspace`: the folder that commands run in and may write to; the current one by default.
    - `url`, `token`: a `legwork serve` to be used instead: `http://…`, `https://…` or
      `unix:/path`. Workspace, trust and tools are then those of the token.
    - `approve`: called, in a thread of its own, with each question about a command. Without it
      such a command raises `Denied` with the kind `approval_unavailable`.
    - `ask`, `sandbox`, `trust`, `policy`, `tools`, `state`: the options of `legwork mcp`.
    - `program`: the program; by default $LEGWORK_PROGRAM, this package's own or that on PATH.
    - `env`: the environment of the program and its commands, instead of this process's.
    - `name`: who is asking, for `legwork ps` and the audit log.
    """

    def __init__(
        self,
        workspace: Optional[PathLike] = None,
        *,
        url: Optional[str] = None,
        token: Optional[str] = None,
        approve: Optional[Approve] = None,
        ask: Optional[str] = None,
        sandbox: Optional[str] = None,
        trust: Optional[str] = None,
        policy: Sequence[PathLike] = (),
        tools: Optional[Sequence[str]] = None,
        state: Optional[PathLike] = None,
        program: Optional[PathLike] = None,
        env: Optional[Mapping[str, str]] = None,
        ssl_context: Optional[ssl.SSLContext] = None,
        name: str = "legwork-cli-python",
    ) -> None:
        settings = Settings(
            workspace=workspace,
            url=url,
            token=token,
            ssl_context=ssl_context,
            program=program,
            state=state,
            ask=ask,
            sandbox=sandbox,
            trust=trust,
            policy=policy,
            tools=tools,
            env=env,
            name=name,
        )
        self._conversation = open_conversation(settings, _asker(approve) if approve else None)
        # Whoever forgets to close leaves no process behind.
        self._finalizer = weakref.finalize(self, self._conversation.close)

    def __enter__(self) -> Legwork:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection. May be called again, and from any thread."""
        self._finalizer.detach()
        self._conversation.close()

    @property
    def instructions(self) -> str:
        """What a model should know about the tools and the sandbox in force."""
        return self._conversation.instructions

    def run(
        self,
        command: str,
        *,
        timeout: Optional[float] = None,
        check: bool = False,
        workdir: Optional[PathLike] = None,
        shell: Optional[str] = None,
        login: Optional[bool] = None,
        max_output: int = MAX_OUTPUT,
    ) -> Result:
        """Runs a shell script and waits for its end.

        After `timeout` seconds it is stopped, with all that it started, and the result has
        `timed_out`. With `check`, anything but exit code 0 raises CommandFailed. An exception that
        interrupts the wait (Ctrl-C) stops the command.
        """
        arguments = exec_arguments(command, workdir, shell, login)
        result = self._drive(operations.run(arguments, timeout=timeout, max_output=max_output))
        return result.check() if check else result

    def start(
        self,
        command: str,
        *,
        workdir: Optional[PathLike] = None,
        shell: Optional[str] = None,
        login: Optional[bool] = None,
        tty: bool = False,
        accepts_input: Optional[bool] = None,
        reuse: bool = False,
    ) -> Task:
        """Starts a shell script as a task, and does not wait for it.

        With `accepts_input` (the default of a `tty`) its stdin stays open for `Task.send`. With
        `reuse`, an equal command that runs already is taken instead of a second one.
        """
        arguments = exec_arguments(command, workdir, shell, login)
        arguments.update(start_arguments(tty, accepts_input, reuse))
        return Task(self, self._drive(operations.start(arguments)))

    def task(self, task_id: str) -> Task:
        """A task by its id, whoever started it in this workspace."""
        return Task(self, task_id)

    def tasks(self, *, include_finished: bool = False, limit: int = 20) -> Tuple[TaskStatus, ...]:
        """The tasks of the workspace, newest first."""
        return self._drive(operations.tasks(include_finished, limit))

    def call(self, tool: str, arguments: Mapping[str, Any]) -> Answer:
        """Calls a tool as a model does. An error of the tool is an answer, too."""
        return answer_of(tool, self._wait(self._conversation.call(tool, arguments)))

    def tools(self) -> Tuple[Json, ...]:
        """The tools, as MCP describes them."""
        _, future = self._conversation.request("tools/list", {})
        return tuple(self._wait(future).get("tools") or ())

    def _drive(self, operation: Operation[T]) -> T:
        try:
            call = next(operation)
            while True:
                call = operation.send(self.call(call.tool, call.arguments))
        except StopIteration as stop:
            value: T = stop.value
            return value

    def _wait(self, future: concurrent.futures.Future[Json]) -> Json:
        try:
            while not concurrent.futures.wait([future], SILENCE_MAX).done:
                silence = self._conversation.silence()
                if silence > SILENCE_MAX:
                    raise ConnectionLost(f"nothing was heard for {silence:.0f} s", retryable=True)
            return future.result()
        finally:
            # Has no effect on what is done.
            future.cancel()


class Task:
    """A command that was started. As a context manager it is stopped at the end of the block."""

    def __init__(self, legwork: Legwork, task_id: str) -> None:
        self._legwork = legwork
        self.id = task_id

    def __repr__(self) -> str:
        return f"Task({self.id!r})"

    def __enter__(self) -> Task:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.stop()

    def wait(
        self,
        *,
        port: Optional[int] = None,
        output: Optional[str] = None,
        path: Optional[PathLike] = None,
        silence: Optional[float] = None,
        waiting_for_input: bool = False,
        exit: bool = False,
        timeout: float = 30.0,
    ) -> Waited:
        """Waits until one of the conditions holds; without any, for the end.

        `port` is open, `output` (a regular expression) was printed, `path` exists, nothing was
        printed for `silence` seconds, or it waits for input. Raises WaitTimeout, or TaskEnded if
        it ended first.
        """
        until = until_of(port, output, path, silence, waiting_for_input, exit)
        return self._drive(operations.wait(self.id, until, timeout))

    def result(
        self, *, timeout: Optional[float] = None, max_output: int = MAX_OUTPUT
    ) -> Result:
        """Waits for the end, and returns the result with all output."""
        return self._drive(operations.result(self.id, max_output=max_output, timeout=timeout))

    def lines(self, *, stream: str = "both") -> Iterator[str]:
        """The lines of its output from the beginning, as they come, until it has ended."""
        follower, lines = operations.Follower(self.id, stream), operations.Lines()
        while not follower.is_over:
            piece = self._drive(follower.next())
            yield from lines.feed(piece, follower.is_over)

    def send(
        self, text: str = "", *, key: Optional[str] = None, eof: bool = False, wait: float = 0.3
    ) -> str:
        """Types text (end a line with a newline), presses a key, or ends the input.

        Returns what was printed in response within `wait` seconds. Raises InputRefused.
        """
        return self._drive(operations.send(self.id, text, key=key, eof=eof, wait=wait))

    def resize(self, rows: int, cols: int) -> None:
        """Gives its terminal another size."""
        self._drive(operations.resize(self.id, rows, cols))

    def screen(self) -> str:
        """What its terminal shows now."""
        return self._drive(operations.screen(self.id))

    def status(self) -> TaskStatus:
        return self._drive(operations.status(self.id))

    def stop(self, *, signal: str = "TERM", grace: float = 3.0) -> Stopped:
        """Stops it and everything that it started: the signal, and after `grace` seconds KILL."""
        return self._drive(operations.stop(self.id, signal, grace))

    def _drive(self, operation: Operation[T]) -> T:
        return self._legwork._drive(operation)


def exec_arguments(
    command: str, workdir: Optional[PathLike], shell: Optional[str], login: Optional[bool]
) -> Dict[str, Any]:
    """The arguments of ExecCommand. What a program asks for twice it wants twice."""
    return {
        "cmd": command,
        "workdir": None if workdir is None else str(workdir),
        "shell": shell,
        "login": login,
        "duplicate_policy": "start_new",
    }


def start_arguments(tty: bool, accepts_input: Optional[bool], reuse: bool) -> Dict[str, Any]:
    policy = "reuse_running" if reuse else "start_new"
    return {"tty": tty or None, "accepts_input": accepts_input, "duplicate_policy": policy}


def until_of(
    port: Optional[int],
    output: Optional[str],
    path: Optional[PathLike],
    silence: Optional[float],
    waiting_for_input: bool,
    exit: bool,
) -> Dict[str, Any]:
    return {
        "port": port,
        "output_matches": output,
        "path_exists": None if path is None else str(path),
        "silence_ms": None if silence is None else max(1, round(silence * 1000)),
        "waiting_for_input": waiting_for_input,
        "exit": exit,
    }


def _asker(approve: Approve) -> Asker:
    """Asks in a thread of its own: a person takes time, and other calls go on."""

    def ask(question: Question, answer: Callable[[Optional[Reply]], None]) -> None:
        def work() -> None:
            try:
                answer(reply_of(approve(question)))
            except Exception:
                log.exception("the approval callback failed")
                answer(None)

        threading.Thread(target=work, name="legwork-approval", daemon=True).start()

    return ask


__all__ = ["Approve", "Legwork", "Task"]
