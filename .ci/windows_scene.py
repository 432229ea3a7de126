"""A workspace, a state folder and programs for Windows on them, under wine: what the session needs."""

import asyncio
import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

WINE = str(pathlib.Path(__file__).with_name("windows"))
PATIENCE_S = 60


class Scene:
    """A workspace, a state folder, and servers on them."""

    def __init__(self, folder_of_programs: str) -> None:
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="lw-windows-", dir="/tmp"))
        self.program = f"{folder_of_programs}/legwork.exe"
        self.portable = windows(f"{folder_of_programs}/portable.exe")
        self.work = self.folder / "work"
        self.work.mkdir()
        self.complaints = self.folder / "complaints"

    def environment(self) -> dict[str, str]:
        """That of this process, without the configuration of a user."""
        return {**os.environ, "XDG_CONFIG_HOME": windows(self.folder / "config")}

    def server(self, path: str = "") -> StdioServerParameters:
        """The command line of a server, with a folder in front of its PATH."""
        place = ["--workspace", windows(self.work), "--state", windows(self.folder / "state")]
        tools = ["--tools", "all", "--mode", "open"]
        environment = {**self.environment(), "WINEPATH": path}
        return StdioServerParameters(command=WINE, args=["run", self.program, "mcp", *place, *tools], env=environment)

    @contextlib.asynccontextmanager
    async def session(self, path: str = "") -> AsyncIterator[ClientSession]:
        """A session with a server of its own, whose complaints are kept."""
        with self.complaints.open("a") as complaints:
            async with stdio_client(self.server(path), errlog=complaints) as streams, ClientSession(*streams) as session:
                await asyncio.wait_for(session.initialize(), PATIENCE_S)
                yield session

    def run(self, *words: str, given: bytes = b"", state: bool = True) -> subprocess.CompletedProcess:
        """Runs the program once."""
        environment = self.environment()
        if state:
            environment["LEGWORK_STATE"] = windows(self.folder / "state")
        line = [WINE, "run", self.program, *words]
        return subprocess.run(line, input=given, capture_output=True, cwd=self.work, env=environment, timeout=PATIENCE_S)

    def pids(self, word: str) -> list[int]:
        """The processes of this scene whose command line has a word in it."""
        found = []
        for entry in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            ours = self.folder.name in line and not any(other in line for other in ("windows_session", "chroot", "unshare"))
            if word in line and ours:
                found.append(int(entry.name))
        return found

    def kill(self, word: str) -> int:
        """Kills those hard; says how many there were."""
        pids = self.pids(word)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(pids)

    def end(self) -> None:
        """Ends what is left, and removes the folder."""
        for word in ("__legwork-warden", " mcp ", " serve ", "portable.exe"):
            self.kill(word)
        shutil.rmtree(self.folder, ignore_errors=True)


def windows(path: pathlib.Path | str) -> str:
    """The path as wine shows it."""
    return "Z:" + str(path).replace("/", "\\")


def linux(path: str) -> pathlib.Path:
    """The path that wine shows so."""
    return pathlib.Path(path.removeprefix("Z:").replace("\\", "/"))


def hex_lines(words: list[str]) -> str:
    """The words as the fixture prints them."""
    return "".join(word.encode().hex() + "\n" for word in words)


async def call(session: ClientSession, tool: str, **arguments: object) -> dict:
    """Calls a tool; returns its envelope, with the receipt as `text`."""
    meta = {"legwork/structured": True}
    answer = await asyncio.wait_for(session.call_tool(tool, arguments, meta=meta), PATIENCE_S)
    structured = answer.structured_content or {}
    text = "".join(part.text for part in answer.content if part.type == "text")
    return {"text": text, "is_error": answer.is_error, **structured}


def expect(found: object, wanted: object, what: str) -> None:
    """Fails where something is not as it should be."""
    if found != wanted:
        raise AssertionError(f"{what}: {found!r} is not {wanted!r}")


def expect_in(part: str, text: str) -> None:
    """Fails where a text lacks a part."""
    if part not in text:
        raise AssertionError(f"{part!r} is not in {text!r}")


async def until(is_so: object, what: str) -> None:
    """Waits until something is so."""
    begin = time.monotonic()
    while not is_so():
        if time.monotonic() - begin > PATIENCE_S:
            raise AssertionError(f"never: {what}")
        await asyncio.sleep(0.01)


def task_of(answer: dict) -> str:
    """The id of the task that an answer names."""
    words = answer["text"].replace("=", " ").split()
    return next(word.strip(".,;:`()=") for word in words if word.startswith(("t_", "`t_")))
