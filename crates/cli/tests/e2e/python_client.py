"""Drives `legwork mcp` or `legwork serve` with the official Python client, of the older era or the newer."""

import asyncio
import json
import os
import re
import subprocess
import sys
import time
from contextlib import asynccontextmanager

era, legwork, state, workspace, fixture, way = sys.argv[1:7]
ARGUMENTS = ["mcp", "--state", state, "--workspace", workspace]
HERE = os.path.dirname(__file__)


@asynccontextmanager
async def connect(*more, person=None):
    """A session that can list and call, whichever package it comes from; a person may answer questions."""
    arguments = [*ARGUMENTS, *(more or ("--mode", "open"))]
    if way == "http":
        async with serving(*(more or ("--mode", "open"))) as (url, headers):
            async with connect_over_http(url, headers, person) as client:
                yield client
    elif era == "legacy":
        from mcp import ClientSession, StdioServerParameters
        from mcp.client.stdio import stdio_client

        parameters = StdioServerParameters(command=legwork, args=arguments)
        async with stdio_client(parameters) as (read, write):
            async with ClientSession(read, write, elicitation_callback=person) as session:
                info = await session.initialize()
                assert info.serverInfo.name == "legwork", info
                yield session
    else:
        from mcp import Client
        from mcp.client.stdio import StdioServerParameters

        parameters = StdioServerParameters(command=legwork, args=arguments)
        async with Client(parameters, elicitation_callback=person) as client:
            assert client.protocol_version == "2026-07-28", client.protocol_version
            assert client.server_info.name == "legwork", client.server_info
            yield client


served = 0


@asynccontextmanager
async def serving(*more):
    """A server over HTTP, and the headers of an operator; which tools it has is the token's affair."""
    global served
    served += 1
    more, tools = list(more), []
    if "--tools" in more:
        at = more.index("--tools")
        tools = more[at : at + 2]
        del more[at : at + 2]
    name = ["token", "add", f"python-{served}", "--role", "operator", "--state", state]
    made = subprocess.run(
        [legwork, *name, "--workspace", workspace, *tools], capture_output=True, check=True
    )
    place = ["--listen", "127.0.0.1:0", "--state", state, "--workspace", workspace]
    server = subprocess.Popen([legwork, "serve", *place, *more], stdout=subprocess.PIPE, text=True)
    try:
        url = server.stdout.readline().strip() + "/mcp"
        yield url, {"Authorization": f"Bearer {made.stdout.decode().strip()}"}
    finally:
        server.terminate()
        assert server.wait() == 0


@asynccontextmanager
async def connect_over_http(url, headers, person):
    from mcp.client.streamable_http import streamable_http_client

    if era == "legacy":
        import httpx
        from mcp import ClientSession

        async with httpx.AsyncClient(headers=headers, timeout=120) as http:
            async with streamable_http_client(url, http_client=http) as (read, write, session_id):
                async with ClientSession(read, write, elicitation_callback=person) as session:
                    info = await session.initialize()
                    assert info.serverInfo.name == "legwork", info
                    assert session_id(), "the older era has sessions"
                    yield session
    else:
        import httpx2
        from mcp import Client

        async with httpx2.AsyncClient(headers=headers, timeout=120) as http:
            transport = streamable_http_client(url, http_client=http)
            async with Client(transport, elicitation_callback=person) as client:
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
    await same_calls()
    await approvals()
    print("all well")


def calls():
    """The calls of the data file, in a folder where they find what they need."""
    os.makedirs(os.path.join(workspace, "sub"), exist_ok=True)
    for name, text in [("bad-interpreter", "#!/no/such/interpreter\n"), ("no-format", "\0\0\0")]:
        path = os.path.join(workspace, name)
        with open(path, "w") as file:
            file.write(text)
        os.chmod(path, 0o755)
    if not os.path.islink(os.path.join(workspace, "out")):
        os.symlink("/", os.path.join(workspace, "out"))
    with open(os.path.join(HERE, "data", "calls.json")) as file:
        return json.loads(file.read().replace("FIXTURE", fixture))


def plain(text):
    """What differs from run to run, taken out."""
    text = re.sub(r"t_[a-z2-7]{26}", "TASK", text)
    text = re.sub(r'"(pid|backgroundPids)":(\d+|\[[\d,]*\])', r'"\1":0', text)
    return re.sub(r"(Cursor|Duration|Pid): \S+", r"\1: X", text)


def check_schemas(all_calls):
    """What succeeds fits every exported schema, and what is refused as input does not fit the first."""
    import jsonschema

    def exported(form):
        text = subprocess.run([legwork, "tools", "--format", form], capture_output=True, check=True).stdout
        return json.loads(text)

    mcp = {tool["name"]: tool["inputSchema"] for tool in exported("mcp")["tools"]}
    anthropic = {tool["name"]: tool["input_schema"] for tool in exported("anthropic")}
    openai = {tool["function"]["name"]: tool["function"]["parameters"] for tool in exported("openai")}
    gemini = {tool["name"]: lower(tool["parameters"]) for tool in exported("gemini")["functionDeclarations"]}
    for tool, arguments, text in all_calls:
        refused = '"invalid_tool_input"' in text and "blank" not in text
        fits = jsonschema.Draft202012Validator(mcp[tool]).is_valid(arguments)
        assert fits != refused, (tool, arguments, text)
        if not refused:
            jsonschema.validate(arguments, anthropic[tool])
            jsonschema.validate(arguments, gemini[tool])
            jsonschema.validate(filled(arguments, openai[tool]), openai[tool])


def lower(schema):
    """Gemini names its types in capitals."""
    if isinstance(schema, dict):
        return {key: value.lower() if key == "type" else lower(value) for key, value in schema.items()}
    return [lower(item) for item in schema] if isinstance(schema, list) else schema


def filled(arguments, schema):
    """In strict mode a model gives null for what it would leave out."""
    result = {name: arguments.get(name) for name in schema["properties"]}
    for name, value in result.items():
        if isinstance(value, dict):
            result[name] = filled(value, schema["properties"][name])
    return result


async def same_calls():
    """Over MCP and by `legwork call`: the same text for the same call."""
    checked = []
    async with connect("--tools", "all", "--mode", "open") as client:
        for tool, arguments in calls():
            over_mcp, _ = await call(client, tool, **arguments)
            command = [legwork, "call", "--state", state, "--workspace", workspace, "--mode", "open", tool, "-"]
            by_call = subprocess.run(command, input=json.dumps(arguments).encode(), capture_output=True)
            text = by_call.stdout.decode()
            assert plain(over_mcp).rstrip("\n") == plain(text).rstrip("\n"), (arguments, over_mcp, text)
            checked.append((tool, arguments, text))
            for answer in (over_mcp, text):
                if '"backgroundPids"' in answer:
                    await stop_background(client, json.loads(answer))
    check_schemas(checked)


async def approvals():
    """A question reaches the person, and nothing runs without a yes."""
    from mcp import types

    asked = []
    answers = [
        ("accept", {"decision": "allow_once"}, None),
        ("accept", {"decision": "deny", "note": "use make"}, "use make"),
        ("accept", {}, "refused"),
        ("decline", None, "refused"),
        ("cancel", None, "the question was closed without an answer"),
    ]

    async def person(_context, parameters):
        asked.append(parameters.message)
        action, content, _ = answers[len(asked) - 1]
        return types.ElicitResult(action=action, content=content)

    async with connect("--tools", "all", "--mode", "guarded", person=person) as client:
        for number, (action, content, told) in enumerate(answers):
            command = f"echo ran >> ran-{number}"
            text, failed = await call(client, "run_shell_command", command=command, description="a word")
            ran = os.path.join(workspace, f"ran-{number}")
            if told is None:
                assert not failed and json.loads(text)["exitCode"] == 0, text
                with open(ran) as file:
                    assert file.read() == "ran\n", "it ran once"
            else:
                kind = "approval_unavailable" if action == "cancel" else "approval_refused"
                assert failed and f'"{kind}"' in text and told in text, text
                assert not os.path.exists(ran), number
            assert len(asked) == number + 1, "each is asked once"
            assert command in asked[-1] and "The caller's own words about it: a word" in asked[-1], asked[-1]
        # Nobody answers for what needs no answer.
        text, failed = await call(client, "ExecCommand", cmd="echo plain", login=False)
        assert not failed and len(asked) == len(answers)


async def stop_background(client, answer):
    """Processes left behind are alive, and go away with TaskStop."""
    assert len(answer["backgroundPids"]) == 2, answer
    for pid in answer["backgroundPids"]:
        os.kill(pid, 0)
    text, _ = await call(client, "TaskStop", task_id=answer["taskId"])
    assert text.startswith("Task stopped"), text
    for pid in answer["backgroundPids"]:
        assert not os.path.exists(f"/proc/{pid}"), pid


asyncio.run(main())
