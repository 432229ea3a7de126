"""A model that follows a script, on loopback, in the words of each provider.

It calls the tools that it is told to, one after another: as many results as a request has, so many
steps are behind it. What has no tools to offer (titles, summaries) gets a word.
"""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Model:
    """`steps` are pairs: the name of a tool, and its input."""

    def __init__(self, steps):
        self.steps = steps
        self.requests = []
        self.results = {}
        self.offered = []
        self.unknown = []
        model = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                self.answer(200, "application/json", b'{"data": [], "models": []}')

            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                if self.headers.get("content-encoding"):
                    model.unknown.append("a compressed request")
                try:
                    request = json.loads(body or b"{}")
                except ValueError:
                    request = {}
                kind, answer = model.reply(self.path, request)
                self.answer(200, kind, answer.encode())

            def answer(self, status, kind, body):
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()

    def reply(self, path, request):
        self.requests.append((path, request))
        for part, speaks in (
            ("/messages/count_tokens", self.counted),
            ("/messages", self.anthropic),
            ("/responses", self.responses),
            ("/chat/completions", self.chat),
            ("enerateContent", self.gemini),
        ):
            if part in path:
                return speaks(path, request)
        self.unknown.append(path)
        return "application/json", "{}"

    def step(self, offered, results):
        """The next call, if there is one: a step of the script whose tool is offered."""
        self.offered.append(offered)
        for index, result in enumerate(results):
            self.results[index] = result
        if not offered or len(results) >= len(self.steps):
            return None
        return len(results), self.steps[len(results)]

    # Anthropic: Claude Code.

    def counted(self, _path, _request):
        return "application/json", '{"input_tokens": 10}'

    def anthropic(self, _path, request):
        offered = [tool["name"] for tool in request.get("tools", []) if "name" in tool]
        results = []
        for message in request.get("messages", []):
            if isinstance(message["content"], list):
                results += [part for part in message["content"] if part["type"] == "tool_result"]
        step = self.step(offered, results)
        head = {"id": f"msg_{len(self.requests)}", "type": "message", "role": "assistant", "model": "scripted",
                "content": [], "stop_reason": None, "stop_sequence": None,
                "usage": {"input_tokens": 1, "output_tokens": 1}}
        if step:
            number, (name, given) = step
            block = {"type": "tool_use", "id": f"toolu_{number:02}", "name": name, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(given)}
        else:
            block = {"type": "text", "text": ""}
            delta = {"type": "text_delta", "text": "done"}
        why = "tool_use" if step else "end_turn"
        if not request.get("stream"):
            content = dict(block, input=step[1][1]) if step else {"type": "text", "text": "done"}
            return "application/json", json.dumps(dict(head, content=[content], stop_reason=why))
        return events([
            ("message_start", {"type": "message_start", "message": head}),
            ("content_block_start", {"type": "content_block_start", "index": 0, "content_block": block}),
            ("content_block_delta", {"type": "content_block_delta", "index": 0, "delta": delta}),
            ("content_block_stop", {"type": "content_block_stop", "index": 0}),
            ("message_delta", {"type": "message_delta", "delta": {"stop_reason": why, "stop_sequence": None},
                               "usage": {"output_tokens": 1}}),
            ("message_stop", {"type": "message_stop"}),
        ])

    # OpenAI, responses: Codex.

    def responses(self, _path, request):
        offered = []
        for tool in request.get("tools", []):
            inner = [part.get("name") for part in tool.get("tools", [])]
            offered += [f"{tool.get('name')}.{name}" for name in inner] or [tool.get("name")]
        results = [item for item in request.get("input", []) if item.get("type") == "function_call_output"]
        step = self.step(offered, results)
        if step:
            number, (name, given) = step
            item = {"type": "function_call", "id": f"fc_{number:02}", "call_id": f"call_{number:02}",
                    "name": name.split(".")[-1], "arguments": json.dumps(given), "status": "completed"}
            if "." in name:
                item["namespace"] = name.split(".")[0]
        else:
            item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
                    "content": [{"type": "output_text", "text": "done", "annotations": []}]}
        response = {"id": f"resp_{len(self.requests)}", "object": "response", "model": "scripted", "output": [],
                    "status": "in_progress"}
        usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2,
                 "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
        over = dict(response, status="completed", output=[item], usage=usage)
        return events([
            ("response.created", {"type": "response.created", "response": response}),
            ("response.output_item.added", {"type": "response.output_item.added", "output_index": 0, "item": item}),
            ("response.output_item.done", {"type": "response.output_item.done", "output_index": 0, "item": item}),
            ("response.completed", {"type": "response.completed", "response": over}),
        ])

    # OpenAI, chat completions: opencode.

    def chat(self, _path, request):
        offered = [tool["function"]["name"] for tool in request.get("tools", [])]
        results = [message for message in request.get("messages", []) if message["role"] == "tool"]
        step = self.step(offered, results)
        if step:
            number, (name, given) = step
            call = {"index": 0, "id": f"call_{number:02}", "type": "function",
                    "function": {"name": name, "arguments": json.dumps(given)}}
            delta, why = {"role": "assistant", "tool_calls": [call]}, "tool_calls"
        else:
            delta, why = {"role": "assistant", "content": "done"}, "stop"
        head = {"id": "c_1", "object": "chat.completion.chunk", "created": 1, "model": "scripted"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        if not request.get("stream"):
            choice = {"index": 0, "message": delta, "finish_reason": why}
            return "application/json", json.dumps(dict(head, object="chat.completion", choices=[choice], usage=usage))
        first = dict(head, choices=[{"index": 0, "delta": delta, "finish_reason": None}])
        last = dict(head, choices=[{"index": 0, "delta": {}, "finish_reason": why}], usage=usage)
        kind, text = events([(None, first), (None, last)])
        return kind, text + "data: [DONE]\n\n"

    # Google: Gemini CLI.

    def gemini(self, path, request):
        offered = []
        for tool in request.get("tools", []):
            offered += [function["name"] for function in tool.get("functionDeclarations", [])]
        results = []
        for content in request.get("contents", []):
            results += [part for part in content.get("parts", []) if "functionResponse" in part]
        step = self.step(offered, results)
        if step:
            number, (name, given) = step
            part = {"functionCall": {"id": f"call_{number:02}", "name": name, "args": given}}
        else:
            part = {"text": "done"}
        answer = {
            "candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}],
            "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
        }
        if "stream" in path:
            return events([(None, answer)])
        if "generationConfig" in request and request["generationConfig"].get("responseSchema") or not offered:
            # A routing question: any answer that is JSON will do.
            answer["candidates"][0]["content"]["parts"] = [{"text": '{"model_choice": "flash", "reasoning": "x"}'}]
        return "application/json", json.dumps(answer)


def events(listed):
    text = ""
    for name, data in listed:
        text += f"event: {name}\n" if name else ""
        text += f"data: {json.dumps(data)}\n\n"
    return "text/event-stream", text
