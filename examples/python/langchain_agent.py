"""A LangChain agent whose commands run in Legwork, over MCP.

    pip install langchain langchain-openai langchain-mcp-adapters
    python langchain_agent.py [FOLDER]
"""

import asyncio
import sys
import tempfile

from langchain.agents import create_agent
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools
from langchain_openai import ChatOpenAI

from legwork_cli import find_program
from scripted_model import scripted_model


async def main() -> None:
    folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
    server = {"command": find_program(), "args": ["mcp", "--workspace", folder]}
    client = MultiServerMCPClient({"legwork": {"transport": "stdio", **server}})
    # One session for all calls, so that tasks are followed by the connection that started them.
    async with client.session("legwork") as session:
        tools = await load_mcp_tools(session)
        with scripted_model("echo six times seven is $((6 * 7))") as base_url:
            model = ChatOpenAI(model="scripted", base_url=base_url, api_key="none")
            agent = create_agent(model, tools)
            question = {"messages": [{"role": "user", "content": "What is six times seven?"}]}
            answer = await agent.ainvoke(question)
            print(answer["messages"][-1].content)


asyncio.run(main())
