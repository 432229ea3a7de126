"""Exceptions. Each has a `kind`, the same word that the program uses for the error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Mapping, Optional, Type

if TYPE_CHECKING:
    from ._model import Result, TaskStatus


class LegworkError(Exception):
    """Legwork could not do its part. What a command does (an exit code, a signal) is a result."""

    kind: str = "tool_execution_failed"

    def __init__(
        self,
        message: str,
        *,
        kind: Optional[str] = None,
        details: Optional[Mapping[str, Any]] = None,
        recovery_hint: Optional[str] = None,
        retryable: bool = False,
    ) -> None:
        super().__init__(message)
        self.message = message
        if kind is not None:
            self.kind = kind
        self.details: Mapping[str, Any] = details or {}
        self.recovery_hint = recovery_hint
        self.retryable = retryable

    def __str__(self) -> str:
        hint = f" ({self.recovery_hint})" if self.recovery_hint else ""
        return f"{self.kind}: {self.message}{hint}"


class InvalidInput(LegworkError):
    """The arguments do not fit the tool: `invalid_tool_input`."""

    kind = "invalid_tool_input"


class Denied(LegworkError):
    """A rule or a person said no, or nobody could be asked. `kind` tells which."""

    kind = "command_denied"

    @property
    def approval_id(self) -> Optional[str]:
        """The open question, for `legwork approve ID`; then the same call works."""
        found = self.details.get("approval_id")
        return found if isinstance(found, str) else None


class UnknownTask(LegworkError):
    """No task of this workspace has this id."""

    kind = "unknown_task"


class LimitExceeded(LegworkError):
    """A configured limit is reached."""

    kind = "limit_exceeded"


class StateUnavailable(LegworkError):
    """The state folder cannot be used; `details["reason"]` says why."""

    kind = "state_unavailable"


class ProgramNotFound(LegworkError):
    """The program `legwork` is not here, or cannot be started."""

    kind = "program_not_found"


class ConnectionLost(LegworkError):
    """The program or the server went away, or does not answer. Started tasks go on."""

    kind = "connection_lost"


class Closed(ConnectionLost):
    """`close()` was called before, or while the call was under way."""

    kind = "closed"


class Unauthorized(LegworkError):
    """The server does not accept the token."""

    kind = "unauthorized"


class ProtocolError(LegworkError):
    """The other side answered with an error of the protocol, or with something unexpected."""

    kind = "protocol_error"


class WaitTimeout(LegworkError):
    """No condition of a wait held in time. The task goes on."""

    kind = "wait_timeout"

    def __init__(self, message: str, *, output: str = "") -> None:
        super().__init__(message, retryable=True)
        #: What the task printed during the wait.
        self.output = output


class TaskEnded(LegworkError):
    """The task ended before the condition of a wait held."""

    kind = "task_ended"

    def __init__(self, message: str, *, status: TaskStatus, output: str = "") -> None:
        super().__init__(message)
        self.status = status
        #: What the task printed during the wait.
        self.output = output


class InputRefused(LegworkError):
    """The task takes no input, or does not read it."""

    kind = "input_refused"


class CommandFailed(LegworkError):
    """`Result.check()`: the command ended otherwise than with exit code 0."""

    kind = "command_failed"

    def __init__(self, result: Result) -> None:
        end = result.stderr.strip()[-2000:]
        super().__init__(f"the command {result.summary}" + (f": {end}" if end else ""))
        self.result = result


_KINDS: Dict[str, Type[LegworkError]] = {
    "invalid_tool_input": InvalidInput,
    "execution_root_violation": InvalidInput,
    "workdir_not_found": InvalidInput,
    "command_denied": Denied,
    "command_substitution_denied": Denied,
    "approval_refused": Denied,
    "approval_unavailable": Denied,
    "approval_expired": Denied,
    "unknown_task": UnknownTask,
    "limit_exceeded": LimitExceeded,
    "state_unavailable": StateUnavailable,
}


def from_data(error: Mapping[str, Any]) -> LegworkError:
    """The exception for an error as the program tells it."""
    kind = str(error.get("kind", LegworkError.kind))
    return _KINDS.get(kind, LegworkError)(
        str(error.get("message", "no message")),
        kind=kind,
        details=error.get("details"),
        recovery_hint=error.get("recovery_hint"),
        retryable=bool(error.get("retryable", False)),
    )
