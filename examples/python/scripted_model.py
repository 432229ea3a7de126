"""A model that needs no network: a loopback server that speaks OpenAI's chat completions.

It asks for one command with the tool ExecCommand, then answers with what the tool printed. In your
program a real model stands in its place: leave `base_url` out.
"""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Dict, Iterator


def answer(request: Dict[str, Any], command: str) -> Dict[str, Any]:
    """The next message of the conversation."""
    results = [it["content"] for it in request["messages"] if it["role"] == "tool"]
    if results:
        content = results[-1]
        if isinstance(content, list):
            content = "".join(part.get("text", "") for part in content)
        return {"role": "assistant", "content": f"The tool says: {content}"}
    names = [tool["function"]["name"] for tool in request["tools"]]
    assert "ExecCommand" in names, names
    arguments = json.dumps({"cmd": command})
    call = {"name": "ExecCommand", "arguments": arguments}
    calls = [{"id": "call_1", "type": "function", "function": call}]
    return {"role": "assistant", "content": None, "tool_calls": calls}


@contextmanager
def scripted_model(command: str) -> Iterator[str]:
    """Serves the model; its address for `base_url`."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            message = answer(request, command)
            reason = "tool_calls" if message.get("tool_calls") else "stop"
            choice = {"index": 0, "message": message, "finish_reason": reason}
            usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
            body = {"id": "x", "object": "chat.completion", "created": 0, "model": "scripted"}
            text = json.dumps({**body, "choices": [choice], "usage": usage}).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()
