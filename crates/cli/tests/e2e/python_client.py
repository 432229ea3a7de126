"""Drives `legwork mcp` with the official Python client, of the older era or the newer."""

import asyncio
import json
import os
import sys
import time
from contextlib import asynccontextmanager

era, legwork, state, workspace, fixture = sys.argv[1:6]
ARGUMENTS = ["mcp", "--state", state, "--workspace", workspace]


@asynccontextmanager
async def connect():
    """A session that can list and call, whichever package it comes from."""
    if era == "legacy":
        from mcp import ClientSession, StdioServerParameters
        from mcp.client.stdio import stdio_client

        parameters = StdioServerParameters(command=legwork, args=ARGUMENTS)
        async with stdio_client(parameters) as (read, write):
            async with ClientSession(read, write) as session:
                info = await session.initialize()
                assert info.serverInfo.name == "legwork", info
                yield session
    else:
        from mcp import Client
        from mcp.client.stdio import StdioServerParameters

        parameters = StdioServerParameters(command=legwork, args=ARGUMENTS)
        async with Client(parameters) as client:
            assert client.protocol_version == "2026-07-28", client.protocol_version
            assert client.server_info.name == "legwork", client.server_info
            yield client


def is_error(result):
    return result.isError if era == "legacy" else result.is_error


async def run(client, cmd, **more):
    return await call(client, "ExecCommand", cmd=cmd, login=False, **more)


def wait_for(name):
    path = os.path.join(workspace, name)
    while not os.path.exists(path):
        time.sleep(0.005)
    return path


async def call(client, tool, **arguments):
    result = await client.call_tool(tool, arguments)
    assert len(result.content) == 1 and result.content[0].type == "text", result
    return result.content[0].text, bool(is_error(result))


async def main():
    async with connect() as client:
        tools = (await client.list_tools()).tools
        names = "ExecCommand TaskList TaskStatus TaskOutput TaskInput TaskStop TaskWait"
        assert [tool.name for tool in tools] == names.split(), tools

        text, failed = await run(client, "echo hi; echo oops >&2; exit 3")
        assert text == "Process exited with code 3\n\nstdout:\nhi\n\nstderr:\noops", text
        assert not failed

        text, failed = await run(client, "   ")
        assert failed and json.loads(text.removeprefix("Command failed\n"))["kind"] == "invalid_tool_input"

        text, _ = await run(client, f"{fixture} flood 1000000")
        artifact = text.rsplit("Artifacts:\n", 1)[1]
        with open(artifact, "rb") as file:
            assert len(file.read()) == 1000000

        answers = await asyncio.gather(*(run(client, f"echo {n}") for n in range(20)))
        assert [text.rsplit("\n", 1)[1] for text, _ in answers] == [str(n) for n in range(20)]

        # A server: three calls.
        text, _ = await run(client, f"{fixture} serve port", yield_time_ms=0)
        task = text.split("Task: ")[1].split("\n")[0]
        with open(wait_for("port")) as file:
            port = int(file.read())
        text, _ = await call(client, "TaskWait", task_ids=[task], until={"port": port})
        assert text.startswith(f"Condition met: port {port} is open"), text
        text, _ = await call(client, "TaskStop", task_id=task)
        assert text.startswith("Task stopped"), text

        try:
            await client.call_tool("Nothing", {})
        except Exception as error:
            assert "there is no tool `Nothing`" in str(error), error
        else:
            raise AssertionError("an unknown tool is a protocol error")
    print("all well")


asyncio.run(main())
