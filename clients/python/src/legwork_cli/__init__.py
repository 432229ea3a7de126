"""Runs commands for AI agents through Legwork: judged, sandboxed, supervised, recorded.

    from legwork_cli import Legwork

    with Legwork("path/to/project") as lw:
        result = lw.run("pytest -q")
        print(result.exit_code, result.stdout)

`AsyncLegwork` is the same for asyncio. What a command does is a result; what Legwork could not do
is a `LegworkError` with a `kind`.
"""

from ._aio import AsyncApprove, AsyncLegwork, AsyncTask
from ._errors import (
    Closed,
    CommandFailed,
    ConnectionLost,
    Denied,
    InputRefused,
    InvalidInput,
    LegworkError,
    LimitExceeded,
    ProgramNotFound,
    ProtocolError,
    StateUnavailable,
    TaskEnded,
    Unauthorized,
    UnknownTask,
    WaitTimeout,
)
from ._model import (
    Answer,
    Artifact,
    Decision,
    Question,
    Replied,
    Reply,
    Result,
    Stopped,
    TaskStatus,
    Waited,
)
from ._program import find_program, tool_definitions
from ._sync import Approve, Legwork, Task

__all__ = [
    "Answer",
    "Approve",
    "Artifact",
    "AsyncApprove",
    "AsyncLegwork",
    "AsyncTask",
    "Closed",
    "CommandFailed",
    "ConnectionLost",
    "Decision",
    "Denied",
    "InputRefused",
    "InvalidInput",
    "Legwork",
    "LegworkError",
    "LimitExceeded",
    "ProgramNotFound",
    "ProtocolError",
    "Question",
    "Replied",
    "Reply",
    "Result",
    "StateUnavailable",
    "Stopped",
    "Task",
    "TaskEnded",
    "TaskStatus",
    "Unauthorized",
    "UnknownTask",
    "WaitTimeout",
    "Waited",
    "find_program",
    "tool_definitions",
]
