"""What the library gives back: plain, immutable data."""

from __future__ import annotations

import enum
import signal as signals
from dataclasses import dataclass, field
from typing import Any, Dict, Mapping, Optional, Tuple, Union

from ._errors import CommandFailed, LegworkError, from_data

Json = Dict[str, Any]

#: Statuses after which nothing of a task changes any more.
FINAL = frozenset({"completed", "failed", "cancelled", "interrupted"})


@dataclass(frozen=True)
class Artifact:
    """A file with all bytes of a stream, on the machine of the program."""

    path: str
    bytes: int


@dataclass(frozen=True)
class Result:
    """The end of a command. Any exit code is a result; `check()` makes an exception of most."""

    task_id: str
    #: None if a signal killed it, or its end is not known.
    exit_code: Optional[int]
    #: All that it printed, as text: control sequences removed, secrets masked.
    stdout: str
    stderr: str
    #: The signal that killed it.
    signal: Optional[int] = None
    #: `completed`, `failed`, `cancelled` or `interrupted`.
    status: str = "completed"
    #: The `timeout` of the call has passed, and the command was stopped.
    timed_out: bool = False
    #: A stream was over `max_output`: a line in it tells how much was left out before its end.
    truncated: bool = False
    #: In seconds.
    duration: float = 0.0
    #: What ended it, if not the command itself: `timeout`, `stopped`, `oom_killed`, …
    ended_by: Optional[str] = None
    #: Other facts: `masked`, `output_dropped`, …
    flags: Tuple[str, ...] = ()
    #: Processes that it left running. `Task.stop` ends them.
    background_pids: Tuple[int, ...] = ()
    artifacts: Tuple[Artifact, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether it ended by itself, with exit code 0."""
        return self.exit_code == 0 and not self.timed_out

    @property
    def summary(self) -> str:
        """How it ended, in a few words."""
        if self.timed_out:
            return "timed out"
        if self.exit_code is not None:
            return f"exited with code {self.exit_code}"
        if self.signal is not None:
            return f"was killed by {_signal_name(self.signal)}"
        return f"ended with an unknown exit code ({self.status})"

    def check(self) -> Result:
        """Itself if the command succeeded, else CommandFailed."""
        if not self.ok:
            raise CommandFailed(self)
        return self


def _signal_name(number: int) -> str:
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"signal {number}"


@dataclass(frozen=True)
class TaskStatus:
    """A task as it is at one moment."""

    task_id: str
    #: `queued`, `running`, `cancelling`, `completed`, `failed`, `cancelled` or `interrupted`.
    status: str
    summary: str
    command: str
    exit_code: Optional[int] = None
    signal: Optional[int] = None
    pid: Optional[int] = None
    waiting_for_input: bool = False
    background_pids: Tuple[int, ...] = ()
    artifacts: Tuple[Artifact, ...] = ()
    #: All fields, as the program tells them.
    data: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def is_running(self) -> bool:
        return self.status not in FINAL


@dataclass(frozen=True)
class Waited:
    """A condition of `Task.wait` holds."""

    #: `exit`, `port`, `output_matches`, `path_exists`, `silence_ms` or `waiting_for_input`.
    condition: str
    #: How long the wait took, in seconds.
    duration: float
    #: What the task printed since it was last waited for.
    output: str
    status: TaskStatus


@dataclass(frozen=True)
class Stopped:
    """The end of `Task.stop`."""

    #: False if there was nothing to stop.
    requested: bool
    #: Processes that could not be ended.
    survivors: Tuple[int, ...]
    status: TaskStatus


class Decision(str, enum.Enum):
    """An answer to a question about a command."""

    #: On a copy first: the next question says what it would change.
    TRY_FIRST = "try_first"
    #: Apply what it changed when it was tried, without running it again.
    APPLY = "apply"
    ALLOW_ONCE = "allow_once"
    #: Once, outside the sandbox, where the question allows it.
    ALLOW_ONCE_UNCONFINED = "allow_once_unconfined"
    #: Exactly this command in this folder, as long as this connection lasts.
    ALLOW_SESSION = "allow_session"
    #: Exactly this command from now on: the rule is saved.
    ALLOW_RULE = "allow_rule"
    DENY = "deny"


@dataclass(frozen=True)
class Reply:
    """A decision, and a note to whoever asked."""

    decision: Decision
    note: Optional[str] = None


#: What an approval callback returns. True is ALLOW_ONCE, False is DENY; None means that nobody
#: could be asked, which leaves the question open for `legwork approve`.
Replied = Union[Reply, Decision, bool, None]


@dataclass(frozen=True)
class Question:
    """May this command run?"""

    #: The whole question as a person reads it.
    text: str
    #: The decisions that can be given.
    replies: Tuple[Decision, ...]
    #: The rest is empty if the program is too old to tell.
    approval_id: str = ""
    command: str = ""
    #: Why it has to be asked, and the part of the command that is the cause.
    reason: str = ""
    cause: str = ""
    workdir: str = ""
    sandbox: str = ""
    #: All fields, as the program tells them.
    data: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True)
class Answer:
    """The answer to a call of a tool: the text for a model, and the same as data."""

    tool: str
    #: The receipt.
    text: str
    is_error: bool
    #: The envelope: `status`, `result` or `error`.
    envelope: Mapping[str, Any] = field(repr=False)

    @property
    def result(self) -> Json:
        """The result; raises the exception of an error."""
        if self.is_error:
            raise self.error()
        found = self.envelope.get("result")
        return found if isinstance(found, dict) else {}

    def error(self) -> LegworkError:
        """The error as an exception."""
        found = self.envelope.get("error")
        return from_data(found if isinstance(found, dict) else {"message": self.text})


def text_of(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _whole(value: Any) -> Optional[int]:
    return value if isinstance(value, int) else None


def pids_of(value: Any) -> Tuple[int, ...]:
    """Pids, told as numbers or with their commands."""
    found = value if isinstance(value, list) else []
    numbers = (item.get("pid") if isinstance(item, dict) else item for item in found)
    return tuple(number for number in numbers if isinstance(number, int))


def artifacts_of(value: Any) -> Tuple[Artifact, ...]:
    found = value if isinstance(value, list) else []
    return tuple(Artifact(text_of(it.get("path")), _whole(it.get("bytes")) or 0) for it in found)


def status_of(task: Mapping[str, Any]) -> TaskStatus:
    return TaskStatus(
        task_id=text_of(task.get("task_id")),
        status=text_of(task.get("status")),
        summary=text_of(task.get("summary")),
        command=text_of(task.get("command")),
        exit_code=_whole(task.get("exit_status")),
        signal=_whole(task.get("signal")),
        pid=_whole(task.get("pid")),
        waiting_for_input=bool(task.get("waiting_for_input", False)),
        background_pids=pids_of(task.get("background_pids")),
        artifacts=artifacts_of(task.get("artifacts")),
        data=task,
    )


def result_of(
    told: Mapping[str, Any],
    *,
    stdout: str,
    stderr: str,
    truncated: bool,
    timed_out: bool = False,
    status: Optional[str] = None,
) -> Result:
    """The result from what ExecCommand or TaskStatus tells."""
    exit_code = _whole(told.get("exit_status"))
    by_code = "completed" if exit_code == 0 else "failed"
    return Result(
        task_id=text_of(told.get("task_id")),
        exit_code=exit_code,
        stdout=stdout,
        stderr=stderr,
        signal=_whole(told.get("signal")),
        status=status or text_of(told.get("status")) or by_code,
        timed_out=timed_out,
        truncated=truncated,
        duration=(_whole(told.get("duration_ms")) or 0) / 1000,
        ended_by=text_of(told.get("ended_by")) or text_of(told.get("reason")) or None,
        flags=tuple(map(text_of, told.get("flags") or ())),
        background_pids=pids_of(told.get("background_pids")),
        artifacts=artifacts_of(told.get("artifacts")),
    )


def reply_of(replied: Replied) -> Optional[Reply]:
    """What a callback returned, in one form."""
    if replied is None or isinstance(replied, Reply):
        return replied
    if isinstance(replied, Decision):
        return Reply(replied)
    return Reply(Decision.ALLOW_ONCE if replied else Decision.DENY)
