"""The interface for asyncio: the same names, awaited."""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import ssl
from types import TracebackType
from typing import (
    Any,
    AsyncIterator,
    Awaitable,
    Callable,
    Mapping,
    Optional,
    Sequence,
    Tuple,
    Type,
    TypeVar,
    Union,
)

from . import _operations as operations
from ._conversation import SILENCE_MAX, Asker, Conversation, answer_of, log
from ._errors import Closed, ConnectionLost
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
from ._sync import exec_arguments, start_arguments, until_of

T = TypeVar("T")

#: Decides about a command that has to be approved; called in the event loop.
AsyncApprove = Callable[[Question], Union[Replied, Awaitable[Replied]]]


class AsyncLegwork:
    """`Legwork` for asyncio: `async with AsyncLegwork(workspace) as lw: await lw.run(…)`.

    The arguments are those of `Legwork`. Cancelling what waits for a command stops the command.
    """

    def __init__(
        self,
        workspace: Optional[PathLike] = None,
        *,
        url: Optional[str] = None,
        token: Optional[str] = None,
        approve: Optional[AsyncApprove] = None,
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
        self._settings = Settings(
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
        self._approve = approve
        self._opened: Optional[Conversation] = None

    async def open(self) -> AsyncLegwork:
        """Connects. `async with` does it."""
        asker = _asker(self._approve, asyncio.get_running_loop()) if self._approve else None
        opening = asyncio.ensure_future(
            asyncio.to_thread(open_conversation, self._settings, asker)
        )
        try:
            self._opened = await asyncio.shield(opening)
        except asyncio.CancelledError:
            # The thread goes on; what it opens is not left open.
            opening.add_done_callback(_close_late)
            raise
        return self

    async def __aenter__(self) -> AsyncLegwork:
        return await self.open()

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends the connection. May be called again."""
        if self._opened is not None:
            await asyncio.shield(asyncio.to_thread(self._opened.close))

    @property
    def instructions(self) -> str:
        """What a model should know about the tools and the sandbox in force."""
        return self._conversation.instructions

    async def run(
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
        """As `Legwork.run`."""
        arguments = exec_arguments(command, workdir, shell, login)
        operation = operations.run(arguments, timeout=timeout, max_output=max_output)
        result = await self._drive(operation)
        return result.check() if check else result

    async def start(
        self,
        command: str,
        *,
        workdir: Optional[PathLike] = None,
        shell: Optional[str] = None,
        login: Optional[bool] = None,
        tty: bool = False,
        accepts_input: Optional[bool] = None,
        reuse: bool = False,
    ) -> AsyncTask:
        """As `Legwork.start`."""
        arguments = exec_arguments(command, workdir, shell, login)
        arguments.update(start_arguments(tty, accepts_input, reuse))
        return AsyncTask(self, await self._drive(operations.start(arguments)))

    def task(self, task_id: str) -> AsyncTask:
        """A task by its id, whoever started it in this workspace."""
        return AsyncTask(self, task_id)

    async def tasks(
        self, *, include_finished: bool = False, limit: int = 20
    ) -> Tuple[TaskStatus, ...]:
        """The tasks of the workspace, newest first."""
        return await self._drive(operations.tasks(include_finished, limit))

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> Answer:
        """Calls a tool as a model does. An error of the tool is an answer, too."""
        return answer_of(tool, await self._wait(self._conversation.call(tool, arguments)))

    async def tools(self) -> Tuple[Json, ...]:
        """The tools, as MCP describes them."""
        _, future = self._conversation.request("tools/list", {})
        return tuple((await self._wait(future)).get("tools") or ())

    @property
    def _conversation(self) -> Conversation:
        if self._opened is None:
            raise Closed("there is no connection yet: use `async with`, or `await open()`")
        return self._opened

    async def _drive(self, operation: Operation[T]) -> T:
        try:
            call = next(operation)
            while True:
                call = operation.send(await self.call(call.tool, call.arguments))
        except StopIteration as stop:
            value: T = stop.value
            return value

    async def _wait(self, future: concurrent.futures.Future[Json]) -> Json:
        # Cancelling the one cancels the other.
        wrapped = asyncio.wrap_future(future)
        try:
            while not (await asyncio.wait([wrapped], timeout=SILENCE_MAX))[0]:
                silence = self._conversation.silence()
                if silence > SILENCE_MAX:
                    raise ConnectionLost(f"nothing was heard for {silence:.0f} s", retryable=True)
            return wrapped.result()
        finally:
            wrapped.cancel()


class AsyncTask:
    """A command that was started; `async with` stops it at the end of the block."""

    def __init__(self, legwork: AsyncLegwork, task_id: str) -> None:
        self._legwork = legwork
        self.id = task_id

    def __repr__(self) -> str:
        return f"AsyncTask({self.id!r})"

    async def __aenter__(self) -> AsyncTask:
        return self

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        await self.stop()

    async def wait(
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
        """As `Task.wait`."""
        until = until_of(port, output, path, silence, waiting_for_input, exit)
        return await self._drive(operations.wait(self.id, until, timeout))

    async def result(
        self, *, timeout: Optional[float] = None, max_output: int = MAX_OUTPUT
    ) -> Result:
        """Waits for the end, and returns the result with all output."""
        operation = operations.result(self.id, max_output=max_output, timeout=timeout)
        return await self._drive(operation)

    async def lines(self, *, stream: str = "both") -> AsyncIterator[str]:
        """The lines of its output from the beginning, as they come, until it has ended."""
        follower, lines = operations.Follower(self.id, stream), operations.Lines()
        while not follower.is_over:
            piece = await self._drive(follower.next())
            for line in lines.feed(piece, follower.is_over):
                yield line

    async def send(
        self, text: str = "", *, key: Optional[str] = None, eof: bool = False, wait: float = 0.3
    ) -> str:
        """As `Task.send`."""
        return await self._drive(operations.send(self.id, text, key=key, eof=eof, wait=wait))

    async def resize(self, rows: int, cols: int) -> None:
        """Gives its terminal another size."""
        await self._drive(operations.resize(self.id, rows, cols))

    async def screen(self) -> str:
        """What its terminal shows now."""
        return await self._drive(operations.screen(self.id))

    async def status(self) -> TaskStatus:
        return await self._drive(operations.status(self.id))

    async def stop(self, *, signal: str = "TERM", grace: float = 3.0) -> Stopped:
        """As `Task.stop`."""
        return await self._drive(operations.stop(self.id, signal, grace))

    async def _drive(self, operation: Operation[T]) -> T:
        return await self._legwork._drive(operation)


def _asker(approve: AsyncApprove, loop: asyncio.AbstractEventLoop) -> Asker:
    """Asks in the event loop."""

    async def decide(question: Question, answer: Callable[[Optional[Reply]], None]) -> None:
        try:
            replied = approve(question)
            if inspect.isawaitable(replied):
                replied = await replied
            answer(reply_of(replied))
        except Exception:
            log.exception("the approval callback failed")
            answer(None)

    def ask(question: Question, answer: Callable[[Optional[Reply]], None]) -> None:
        asyncio.run_coroutine_threadsafe(decide(question, answer), loop)

    return ask


def _close_late(opening: asyncio.Future[Conversation]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()
