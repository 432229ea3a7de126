#!/usr/bin/env python3
"""Drives `legwork.exe mcp` under wine by the Python client of MCP: what a model sees, kills and adoption.

`windows-session.py PROGRAM [ROUNDS]`: run by `.ci/windows session`, which has the client in an environment of its own. PROGRAM is the
path of legwork.exe; the rounds are those of killed servers and of stopped trees.
"""

import asyncio
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

WINE = str(pathlib.Path(__file__).with_name("windows"))
PATIENCE_S = 120


class Scene:
    """A workspace, a state folder, and servers on them."""

    def __init__(self, program: str) -> None:
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="lw-windows-", dir="/tmp"))
        self.program = program
        (self.folder / "work").mkdir()

    def windows(self, path: pathlib.Path) -> str:
        """The path as wine shows it."""
        return "Z:" + str(path).replace("/", "\\")

    def server(self) -> StdioServerParameters:
        """The command line of a server."""
        place = ["--workspace", self.windows(self.folder / "work"), "--state", self.windows(self.folder / "state")]
        tools = ["--tools", "all", "--mode", "open"]
        return StdioServerParameters(command=WINE, args=["run", self.program, "mcp", *place, *tools])

    def pids(self, word: str) -> list[int]:
        """The processes of this scene whose command line has a word in it."""
        found = []
        for entry in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if word in line and self.folder.name in line and "windows-session" not in line and "chroot" not in line:
                found.append(int(entry.name))
        return found

    def end(self) -> None:
        """Ends what is left, and removes the folder."""
        for pid in self.pids("__legwork-warden") + self.pids(" mcp "):
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)


async def call(session: ClientSession, tool: str, **arguments: object) -> dict:
    """Calls a tool; returns its envelope."""
    meta = {"legwork/structured": True}
    answer = await asyncio.wait_for(session.call_tool(tool, arguments, meta=meta), PATIENCE_S)
    structured = answer.structured_content or {}
    text = "".join(part.text for part in answer.content if part.type == "text")
    return {"text": text, "is_error": answer.is_error, **structured}


def expect(found: object, wanted: object, what: str) -> None:
    """Fails where something is not as it should be."""
    if found != wanted:
        raise AssertionError(f"{what}: {found!r} is not {wanted!r}")


async def whole_session(scene: Scene) -> None:
    """The tools, one after the other."""
    async with stdio_client(scene.server()) as streams, ClientSession(*streams) as session:
        await asyncio.wait_for(session.initialize(), PATIENCE_S)
        tools = {tool.name for tool in (await session.list_tools()).tools}
        missing = {"ExecCommand", "execute_command", "run_shell_command", "TaskStop"} - tools
        expect(missing, set(), "tools")
        ran = json.loads((await call(session, "run_shell_command", command="echo hi & exit 3"))["text"])
        expect((ran["stdout"], ran["exitCode"]), ("hi \r\n", 3), "run_shell_command")
        refused = await call(session, "run_shell_command", command="for /f %i in ('dir') do echo %i")
        expect(refused["is_error"], True, "a substitution")
        executed = json.loads((await call(session, "execute_command", command="cmd.exe", args=["/d", "/c", "echo a b"]))["text"])
        expect((executed["stdout"], executed["return_code"]), ("a b\r\n", 0), "execute_command")
        missing = json.loads((await call(session, "execute_command", command="no-such-program"))["text"])
        expect(missing["return_code"], None, "a program that is not there")
        answer = await call(session, "ExecCommand", cmd="echo out& echo err 1>&2& exit 7")
        expect("code 7" in answer["text"] and "out" in answer["text"], True, answer["text"])
        refused = await call(session, "TaskStop", task_id="x", signal="USR1")
        expect("Windows has no others" in refused["text"], True, refused["text"])


async def adopted(scene: Scene, number: int) -> None:
    """A server is killed hard while a promoted command runs; the next one adopts it and has all of its output."""
    script = "for /l %i in (1,1,3) do @(echo line %i & ping -n 2 127.0.0.1 >NUL)"
    async with stdio_client(scene.server()) as streams, ClientSession(*streams) as session:
        await asyncio.wait_for(session.initialize(), PATIENCE_S)
        answer = await call(session, "ExecCommand", cmd=script, yield_time_ms=300)
        task = answer["result"]["task"]["task_id"] if "task" in answer.get("result", {}) else task_of(answer["text"])
        servers = scene.pids(" mcp ")
        for pid in servers:
            os.kill(pid, signal.SIGKILL)
    async with stdio_client(scene.server()) as streams, ClientSession(*streams) as session:
        await asyncio.wait_for(session.initialize(), PATIENCE_S)
        answer = await call(session, "TaskWait", task_ids=[task], timeout_ms=60_000)
        output = await call(session, "TaskOutput", task_id=task)
        for line in range(1, 4):
            expect(f"line {line}" in output["text"] + answer["text"], True, f"round {number}: {answer['text']} {output['text']}")


def task_of(text: str) -> str:
    """The id of the task that an answer names."""
    return next(word.strip(".,;:`()=") for word in text.replace("=", " ").split() if word.startswith(("t_", "`t_")))


async def main() -> None:
    """All of it."""
    program, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1
    subprocess.run([WINE, "begin"], check=True)
    scene = Scene(program)
    try:
        await whole_session(scene)
        print("session: well")
        for number in range(rounds):
            await adopted(scene, number)
        print(f"adopted: {rounds} of {rounds}")
    finally:
        scene.end()


asyncio.run(main())
