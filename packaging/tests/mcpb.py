"""Installs a bundle as a client does, and drives its server with the official MCP library.

mcpb.py UNPACKED VERSION, where UNPACKED is the folder that `mcpb unpack` wrote.
"""

import asyncio
import json
import sys
import tempfile
from pathlib import Path

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client


def server(folder: Path, workspace: str, state: str) -> StdioServerParameters:
    """The server that the manifest names, with the places filled in."""
    manifest = json.loads((folder / "manifest.json").read_text())
    config = manifest["server"]["mcp_config"]
    given = {"${__dirname}": str(folder), "${user_config.workspace}": workspace}

    def fill(text: str) -> str:
        for name, value in given.items():
            text = text.replace(name, value)
        assert "${" not in text, f"nobody fills in {text}"
        return text

    assert (folder / manifest["server"]["entry_point"]).stat().st_mode & 0o111
    return StdioServerParameters(
        command=fill(config["command"]),
        args=[fill(argument) for argument in config["args"]],
        env={**config["env"], "LEGWORK_STATE": state},
    )


async def main(folder: Path, version: str) -> None:
    with tempfile.TemporaryDirectory() as workspace, tempfile.TemporaryDirectory() as state:
        async with stdio_client(server(folder, workspace, state)) as (reader, writer):
            async with ClientSession(reader, writer) as session:
                hello = await session.initialize()
                about = getattr(hello, "server_info", None) or hello.serverInfo
                assert (about.name, about.version) == ("legwork", version), about
                tools = [tool.name for tool in (await session.list_tools()).tools]
                assert "ExecCommand" in tools, tools
                command = {"cmd": "echo hi > made; pwd; exit 3"}
                result = await session.call_tool("ExecCommand", command)
                text = result.content[0].text
                assert "Process exited with code 3" in text, text
                assert str(Path(workspace).resolve()) in text, text
                assert (Path(workspace) / "made").read_text() == "hi\n"
    print(f"{about.name} {about.version}: {len(tools)} tools, a command ran in its workspace")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]).resolve(), sys.argv[2]))
