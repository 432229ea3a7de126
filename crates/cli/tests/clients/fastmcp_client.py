"""Drives `legwork serve` with fastmcp's client."""

import asyncio
import sys

from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport

url, token = sys.argv[1:3]


async def main():
    headers = {"Authorization": f"Bearer {token}"}
    async with Client(StreamableHttpTransport(url, headers=headers)) as client:
        tools = [tool.name for tool in await client.list_tools()]
        names = "ExecCommand TaskList TaskStatus TaskOutput TaskInput TaskStop TaskWait"
        assert tools == names.split(), tools

        result = await client.call_tool("ExecCommand", {"cmd": "echo hi; exit 3", "login": False})
        text = "Process exited with code 3\n\nstdout:\nhi"
        assert [block.text for block in result.content] == [text], result
        assert not result.is_error, result

        refused = await client.call_tool("ExecCommand", {"cmd": " "}, raise_on_error=False)
        assert refused.is_error and "invalid_tool_input" in refused.content[0].text, refused
    print("all well")


asyncio.run(main())
