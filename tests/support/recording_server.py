"""A simulated model server that records the bodies of its requests."""

import json
import math
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Server:
    """Treats every text as one token.

    Its continuation is `text` up to the first stop string. Its next token has the probabilities of `mass`.
    """

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        """Bodies of the completion requests, in order."""
        self.mass: dict[str, float] = {}
        self.text = ""
        self._ids: dict[str, int] = {}
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.answer({"object": "list", "data": [{"id": "simulated", "object": "model"}]})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self.answer(server.tokenize(body) if self.path == "/tokenize" else server.complete(body))

            def answer(self, body: dict[str, Any]) -> None:
                data = json.dumps(body).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}/v1"

    def tokenize(self, body: dict[str, Any]) -> dict[str, Any]:
        return {"count": 1, "tokens": [self._ids.setdefault(body["prompt"], len(self._ids))]}

    def complete(self, body: dict[str, Any]) -> dict[str, Any]:
        self.requests.append(body)
        asked = body.get("logprob_token_ids", ())
        top = {f"token_id:{id}": math.log(self.mass.get(text, 1e-12)) for text, id in self._ids.items() if id in asked}
        logprobs = {"tokens": [], "token_logprobs": [], "top_logprobs": [top]}
        prompts = body["prompt"] if isinstance(body["prompt"], list) else [body["prompt"]]
        text = self.text
        for stop in body.get("stop") or ():
            text = text.split(stop)[0]
        choices = [
            {"index": index, "text": text, "finish_reason": "stop", "logprobs": logprobs}
            for index in range(len(prompts) * body.get("n", 1))
        ]
        return {"id": "1", "object": "text_completion", "created": 0, "model": "simulated", "choices": choices}

    def __enter__(self) -> "Server":
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()
