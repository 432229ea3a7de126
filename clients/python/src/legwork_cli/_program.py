"""Finds the program, and prints its definitions of the tools."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, Optional, Sequence, Union

from ._errors import ProgramNotFound

#: Names a program to be used instead of the package's own.
VARIABLE = "LEGWORK_PROGRAM"

PathLike = Union[str, "os.PathLike[str]"]


def find_program(explicit: Optional[PathLike] = None) -> str:
    """The program: the given one, that of $LEGWORK_PROGRAM, this package's own, that of PATH."""
    for named, source in ((explicit, "program"), (os.environ.get(VARIABLE), f"${VARIABLE}")):
        if named:
            found = shutil.which(os.fspath(named))
            if found is None:
                raise ProgramNotFound(f"there is no program {os.fspath(named)!r} ({source})")
            return found
    found = _own() or shutil.which("legwork")
    if found is None:
        raise ProgramNotFound(
            "the program `legwork` is neither in this package nor on PATH",
            recovery_hint=f"install it, or name it with program=… or ${VARIABLE}",
        )
    return found


def _own() -> Optional[str]:
    """The program that was installed with this package, wherever that is."""
    package = Path(__file__).resolve().parent
    # With `pip install --target` programs stand beside the packages, and pip's list of files names
    # another place.
    candidates = [package.parent / "bin" / "legwork"]
    try:
        files = importlib.metadata.distribution("legwork-cli").files or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    candidates += [Path(str(it.locate())).resolve() for it in files if it.name == "legwork"]
    return next((str(it) for it in candidates if os.access(it, os.X_OK) and it.is_file()), None)


def tool_definitions(
    format: str = "mcp",
    *,
    tools: Optional[Sequence[str]] = None,
    program: Optional[PathLike] = None,
) -> Any:
    """The tools for a model: `format` is `mcp`, `openai`, `anthropic` or `gemini`.

    Without `tools` it is those that `legwork mcp` offers by default.
    """
    chosen = ",".join(tools) if tools is not None else ",".join(DEFAULT_TOOLS)
    command = [find_program(program), "tools", "--format", format, "--tools", chosen]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise ValueError(done.stderr.strip())
    return json.loads(done.stdout)


#: The tools that `legwork mcp` offers by default.
DEFAULT_TOOLS = (
    "ExecCommand",
    "TaskList",
    "TaskStatus",
    "TaskOutput",
    "TaskInput",
    "TaskStop",
    "TaskWait",
)
