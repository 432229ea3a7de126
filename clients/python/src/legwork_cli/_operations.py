"""What the library does with the tools, without knowing how a call is waited for.

Each operation is a generator: it yields the calls that it makes and is sent their answers, so that
the synchronous and the asynchronous interface are two drivers of the same code.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Dict, Generator, Mapping, Optional, Tuple, TypeVar

from ._errors import InputRefused, TaskEnded, WaitTimeout
from ._model import (
    FINAL,
    Answer,
    Json,
    Result,
    Stopped,
    TaskStatus,
    Waited,
    pids_of,
    result_of,
    status_of,
    text_of,
)

T = TypeVar("T")

#: Most characters of each stream in a result; the artifacts have all of it.
MAX_OUTPUT = 1024 * 1024

#: The longest that one call waits; longer waits are several calls.
WINDOW_MS_MAX = 3_600_000

#: How long a call for output waits.
OUTPUT_WAIT_MS = 30_000

#: A longer line comes in pieces.
LINE_MAX = 1024 * 1024


@dataclass(frozen=True)
class Call:
    """A call of a tool that an operation wants to make."""

    tool: str
    arguments: Mapping[str, Any]


Operation = Generator[Call, Answer, T]


def _milliseconds(seconds: Optional[float]) -> int:
    """Rounded up, and at most a window."""
    if seconds is None:
        return WINDOW_MS_MAX
    return max(0, min(WINDOW_MS_MAX, math.ceil(seconds * 1000)))


def _call(tool: str, **arguments: Any) -> Operation[Json]:
    answer = yield Call(tool, {key: it for key, it in arguments.items() if it is not None})
    return answer.result


def run(
    arguments: Dict[str, Any], *, timeout: Optional[float], max_output: int
) -> Operation[Result]:
    """Runs a command to its end, or for as long as it may take."""
    told = yield from _call("ExecCommand", **arguments, yield_time_ms=_milliseconds(timeout))
    if told.get("disposition") == "completed":
        return (yield from _completed(told, max_output))
    task_id = _task_id(told)
    while timeout is None or timeout * 1000 > WINDOW_MS_MAX:
        timeout = None if timeout is None else timeout - WINDOW_MS_MAX / 1000
        waited = yield from _wait(task_id, {"exit": True}, timeout)
        if waited.get("met"):
            return (yield from result(task_id, max_output=max_output))
    stopped = yield from _call("TaskStop", task_id=task_id)
    was_stopped = bool(stopped.get("stop_requested"))
    return (yield from result(task_id, max_output=max_output, timed_out=was_stopped))


def start(arguments: Dict[str, Any]) -> Operation[str]:
    """Starts a command and leaves it running; its id."""
    told = yield from _call("ExecCommand", **arguments, yield_time_ms=0)
    return _task_id(told)


def result(
    task_id: str, *, max_output: int, timeout: Optional[float] = None, timed_out: bool = False
) -> Operation[Result]:
    """Waits for the end of a task; its result with all output."""
    remaining = timeout
    while True:
        waited = yield from _wait(task_id, {"exit": True}, remaining)
        if waited.get("met"):
            break
        if remaining is not None:
            remaining -= WINDOW_MS_MAX / 1000
            if remaining <= 0:
                raise WaitTimeout("the task has not ended in time")
    task = (yield from _call("TaskStatus", task_id=task_id)).get("task") or {}
    stdout, cut_stdout = yield from _whole_stream(task_id, "stdout", max_output)
    stderr, cut_stderr = yield from _whole_stream(task_id, "stderr", max_output)
    return result_of(
        task,
        stdout=stdout,
        stderr=stderr,
        truncated=cut_stdout or cut_stderr,
        timed_out=timed_out,
    )


def status(task_id: str) -> Operation[TaskStatus]:
    told = yield from _call("TaskStatus", task_id=task_id)
    return status_of(told.get("task") or {})


def tasks(include_finished: bool, limit: int) -> Operation[Tuple[TaskStatus, ...]]:
    told = yield from _call("TaskList", include_finished=include_finished, limit=limit)
    return tuple(status_of(task) for task in told.get("tasks") or [])


def wait(task_id: str, until: Dict[str, Any], timeout: float) -> Operation[Waited]:
    """Waits until a condition holds; raises if that cannot be, or takes too long."""
    until = {key: it for key, it in until.items() if it not in (None, False)} or {"exit": True}
    told = yield from _wait(task_id, until, timeout)
    task: Json = next((it for it in told.get("tasks") or [] if it.get("task_id") == task_id), {})
    now, output = status_of(task), text_of(told.get("output_preview"))
    if told.get("met"):
        duration = (told.get("duration_ms") or 0) / 1000
        return Waited(_condition(told.get("condition")), duration, output, now)
    sought = text_of(told.get("sought")) or "the condition"
    if now.status in FINAL:
        message = f"the task {now.summary}, and this never happened: {sought}"
        raise TaskEnded(message, status=now, output=output)
    raise WaitTimeout(f"this did not happen within {timeout:g} s: {sought}", output=output)


def stop(task_id: str, signal: str, grace: float) -> Operation[Stopped]:
    grace_ms = _milliseconds(grace)
    told = yield from _call("TaskStop", task_id=task_id, signal=signal, grace_ms=grace_ms)
    now = status_of(told.get("task") or {})
    return Stopped(bool(told.get("stop_requested")), pids_of(told.get("survivors")), now)


def send(
    task_id: str, text: str, *, key: Optional[str], eof: bool, wait: float
) -> Operation[str]:
    """Types something; what was printed in response within `wait` seconds."""
    told = yield from _call(
        "TaskInput",
        task_id=task_id,
        input=text or None,
        key=key,
        eof=eof or None,
        wait_ms=min(60_000, _milliseconds(wait)),
    )
    if not told.get("accepted_input"):
        raise InputRefused(text_of(told.get("reason")) or "the task takes no input")
    return text_of(told.get("output_preview"))


def resize(task_id: str, rows: int, cols: int) -> Operation[None]:
    told = yield from _call("TaskInput", task_id=task_id, rows=rows, cols=cols, wait_ms=0)
    if not told.get("accepted_input"):
        raise InputRefused(text_of(told.get("reason")) or "the task has no terminal")


def screen(task_id: str) -> Operation[str]:
    told = yield from _call("TaskOutput", task_id=task_id, view="screen")
    return text_of(told.get("output_preview"))


class Follower:
    """Reads a task's output from its beginning to its end, piece by piece."""

    def __init__(self, task_id: str, stream: str, block: bool = True) -> None:
        self._task_id, self._stream, self._block = task_id, stream, block
        self._cursor = "start"
        self.is_over = False

    def next(self) -> Operation[str]:
        """The next piece, perhaps empty; `is_over` if there will be none after it."""
        told = yield from _call(
            "TaskOutput",
            task_id=self._task_id,
            stream=self._stream,
            after=self._cursor,
            block=self._block,
            timeout_ms=OUTPUT_WAIT_MS,
        )
        self._cursor = text_of(told.get("next_cursor")) or self._cursor
        has_ended = (told.get("task") or {}).get("status") in FINAL
        self.is_over = not told.get("more") and (has_ended or not self._block)
        return text_of(told.get("output_preview"))


class Lines:
    """Makes lines of pieces."""

    def __init__(self) -> None:
        self._rest = ""

    def feed(self, piece: str, is_last: bool) -> Tuple[str, ...]:
        """The lines that are complete, without their ends; the last need not be."""
        *lines, self._rest = (self._rest + piece).split("\n")
        if self._rest and (is_last or len(self._rest) > LINE_MAX):
            lines.append(self._rest)
            self._rest = ""
        return tuple(lines)


def _condition(told: Any) -> str:
    """Its name: a condition with a value is told as both."""
    return text_of(next(iter(told), "")) if isinstance(told, dict) else text_of(told)


def _task_id(told: Mapping[str, Any]) -> str:
    handle = told.get("task_handle") or told
    return text_of(handle.get("task_id"))


def _wait(task_id: str, until: Mapping[str, Any], timeout: Optional[float]) -> Operation[Json]:
    return (
        yield from _call(
            "TaskWait", task_ids=[task_id], until=dict(until), timeout_ms=_milliseconds(timeout)
        )
    )


def _completed(told: Json, max_output: int) -> Operation[Result]:
    """The result of a command that ended within the call."""
    streams = []
    is_cut = False
    for name in ("stdout", "stderr"):
        text = ""
        # The preview leaves out blank lines at the ends, so it only says whether there is text.
        if told.get(f"{name}_preview") is not None:
            text, cut = yield from _whole_stream(text_of(told.get("task_id")), name, max_output)
            is_cut = is_cut or cut
        streams.append(text)
    return result_of(told, stdout=streams[0], stderr=streams[1], truncated=is_cut)


def _whole_stream(task_id: str, stream: str, most: int) -> Operation[Tuple[str, bool]]:
    """A stream, and whether something of it was left out."""
    follower, pieces, length = Follower(task_id, stream, block=False), [], 0
    while not follower.is_over and length <= most:
        piece = yield from follower.next()
        pieces.append(piece)
        length += len(piece)
    if not follower.is_over:
        # Without a cursor it goes on from there: with a line that tells the gap, and the end.
        told = yield from _call("TaskOutput", task_id=task_id, stream=stream, block=False)
        pieces.append(text_of(told.get("output_preview")))
    return "".join(pieces), not follower.is_over
