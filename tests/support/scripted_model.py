"""A model server with a chat API alone, whose replies are a line of the conversation's task: a JSON list of texts."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


def reply(messages: list[dict[str, Any]]) -> str:
    """The next text of the script: each reply of the model so far has used one."""
    lines = [line for one in messages if one["role"] == "user" for line in str(one["content"]).split("\n")]
    script = next((json.loads(line) for line in lines if line.startswith('["')), [])
    said = sum(one["role"] == "assistant" for one in messages)
    return str(script[said]) if said < len(script) else "The script is over."


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        found = self.path == "/v1/models"
        self.answer({"object": "list", "data": [{"id": "scripted", "object": "model"}]} if found else {}, found)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path != "/v1/chat/completions" or "messages" not in body:  # weavegen asks what the server can do
            self.answer({"error": {"message": "there is only a chat API, which takes messages"}}, False)
            return
        message = {"role": "assistant", "content": reply(body["messages"])}
        usage = {"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20}
        choices = [{"index": 0, "finish_reason": "stop", "message": message}]
        self.answer(
            {
                "id": "1",
                "object": "chat.completion",
                "created": 1,
                "model": "scripted",
                "choices": choices,
                "usage": usage,
            }
        )

    def answer(self, body: dict[str, Any], found: bool = True) -> None:
        data = json.dumps(body).encode()
        self.send_response(200 if found else 400 if self.command == "POST" else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: Any) -> None:
        pass


@contextmanager
def scripted_model() -> Iterator[str]:
    """Yields the URL of a server."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()
