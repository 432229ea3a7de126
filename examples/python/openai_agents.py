"""An agent of the OpenAI Agents SDK whose commands run in Legwork, over MCP.

    pip install openai-agents
    python openai_agents.py [FOLDER]
"""

import asyncio
import sys
import tempfile

from agents import Agent, OpenAIChatCompletionsModel, Runner, set_tracing_disabled
from agents.mcp import MCPServerStdio
from openai import AsyncOpenAI

from legwork_cli import find_program
from scripted_model import scripted_model

set_tracing_disabled(True)


async def main() -> None:
    folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
    command = {"command": find_program(), "args": ["mcp", "--workspace", folder]}
    # A command may take longer than the SDK's own five seconds.
    async with MCPServerStdio(params=command, client_session_timeout_seconds=120) as legwork:
        with scripted_model("echo six times seven is $((6 * 7))") as base_url:
            client = AsyncOpenAI(base_url=base_url, api_key="none")
            model = OpenAIChatCompletionsModel(model="scripted", openai_client=client)
            agent = Agent(name="example", model=model, mcp_servers=[legwork])
            result = await Runner.run(agent, "What is six times seven?")
            print(result.final_output)


asyncio.run(main())
