"""An agent loop of thirty lines, for models of OpenAI and of Anthropic.

The model here follows a script, so that the example runs anywhere; put your client in its place.
The tools come from `legwork tools --format`, and each call goes to Legwork as the model made it.

    python agent_loop.py [FOLDER]
"""

from __future__ import annotations

import json
import sys
import tempfile
from typing import Any, Callable, Dict, List

from legwork_cli import Decision, Legwork, Question, Reply, tool_definitions

Message = Dict[str, Any]


def approve(question: Question) -> Reply:
    """Whoever sits at your agent decides; here a note tells the model what to do instead."""
    return Reply(Decision.DENY, f"no: {question.reason}")


def openai_loop(lw: Legwork, model: Callable[..., Message], task: str) -> str:
    """The shape of OpenAI's chat completions."""
    tools = tool_definitions("openai")
    messages: List[Message] = [
        {"role": "system", "content": lw.instructions},
        {"role": "user", "content": task},
    ]
    while True:
        message = model(messages=messages, tools=tools)
        messages.append(message)
        if not message.get("tool_calls"):
            return str(message["content"])
        for call in message["tool_calls"]:
            given = json.loads(call["function"]["arguments"])
            # In strict mode a model gives null for what it leaves out.
            answer = lw.call(call["function"]["name"], given)
            result = {"role": "tool", "tool_call_id": call["id"], "content": answer.text}
            messages.append(result)


def anthropic_loop(lw: Legwork, model: Callable[..., Message], task: str) -> str:
    """The shape of Anthropic's messages."""
    tools = tool_definitions("anthropic")
    messages: List[Message] = [{"role": "user", "content": task}]
    while True:
        message = model(system=lw.instructions, messages=messages, tools=tools)
        messages.append({"role": "assistant", "content": message["content"]})
        results = []
        for block in message["content"]:
            if block["type"] == "tool_use":
                answer = lw.call(block["name"], block["input"])
                result = {"type": "tool_result", "tool_use_id": block["id"]}
                results.append({**result, "content": answer.text, "is_error": answer.is_error})
        if not results:
            return "".join(block["text"] for block in message["content"])
        messages.append({"role": "user", "content": results})


# From here on: the scripted models.

SCRIPT = [
    {"cmd": "echo 'print(6 * 7)' > answer.py && python3 answer.py"},
    {"cmd": "rm -rf build"},
]


def scripted_openai(messages: List[Message], tools: List[Message]) -> Message:
    assert any(tool["function"]["name"] == "ExecCommand" for tool in tools)
    results = [message["content"] for message in messages if message["role"] == "tool"]
    if len(results) == len(SCRIPT):
        return {"role": "assistant", "content": summary(results)}
    function = {"name": "ExecCommand", "arguments": json.dumps(SCRIPT[len(results)])}
    call = {"id": f"call_{len(results)}", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def scripted_anthropic(system: str, messages: List[Message], tools: List[Message]) -> Message:
    assert any(tool["name"] == "ExecCommand" for tool in tools) and "ExecCommand" in system
    results = [
        block["content"]
        for message in messages
        if message["role"] == "user" and isinstance(message["content"], list)
        for block in message["content"]
    ]
    if len(results) == len(SCRIPT):
        return {"content": [{"type": "text", "text": summary(results)}]}
    use = {"type": "tool_use", "id": f"use_{len(results)}", "name": "ExecCommand"}
    return {"content": [{**use, "input": SCRIPT[len(results)]}]}


def summary(results: List[str]) -> str:
    ran, refused = results
    return f"It printed {ran.split()[-1]}; the other was {json.loads(refused[15:])['kind']}."


def main() -> None:
    folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
    with Legwork(folder, approve=approve, name="agent-loop") as lw:
        print("OpenAI:   ", openai_loop(lw, scripted_openai, "Compute the answer."))
        print("Anthropic:", anthropic_loop(lw, scripted_anthropic, "Compute the answer."))


if __name__ == "__main__":
    main()
