"""A model server whose completions are bytes that a test writes, over real sockets."""

import json
import socket
import socketserver
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from typing import Any

Raw = bytes | Iterable[bytes]
"""An answer, from its first line on; or its parts, whose iterator may wait between them."""


def answer(body: bytes | dict[str, Any], status: str = "200 OK", *headers: str, length: int | None = None) -> bytes:
    """An answer of HTTP. `length`: a wrong Content-Length."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    size = len(data) if length is None else length
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {size}", "Connection: close", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


def completion(request: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A right answer to a completion request, with yes likelier than no. `changes`: other fields of its choices."""
    prompts = request["prompt"] if isinstance(request["prompt"], list) else [request["prompt"]]
    logprobs = {"tokens": ["token_id:1"], "token_logprobs": [-0.2], "top_logprobs": [{"Yes": -0.2, "No": -2.0}]}
    choice = {"text": "Yes", "finish_reason": "stop", "logprobs": logprobs}
    count = len(prompts) * request.get("n", 1)
    return {"choices": [{"index": index, **choice, **changes} for index in range(count)]}


class RawServer:
    """Serves one model. `reply` makes the answer to a completion request; None: the right one."""

    def __init__(self, reply: Callable[[dict[str, Any]], Raw | None] = lambda request: None) -> None:
        self.reply = reply
        self.paths: tuple[str, ...] = ("/v1/completions",)
        self.model = "raw"
        self.requests = 0
        """Completion requests so far."""
        server = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                line, length = self.rfile.readline().decode(), 0
                while (header := self.rfile.readline()) not in (b"\r\n", b""):
                    name, _, value = header.decode().partition(":")
                    length = int(value) if name.lower() == "content-length" else length
                body = json.loads(self.rfile.read(length) or b"{}")
                raw = server.answer(line.split(" ")[1], body) if line else b""
                try:
                    for part in [raw] if isinstance(raw, bytes) else raw:
                        self.wfile.write(part)
                        self.wfile.flush()
                except OSError:
                    pass  # the client hung up

        class Server(socketserver.ThreadingTCPServer):
            allow_reuse_address, daemon_threads, request_queue_size = True, True, 256

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def answer(self, path: str, body: dict[str, Any]) -> Raw:
        if path == "/v1/models":
            return answer({"data": [{"id": self.model, "max_model_len": 8192}]})
        if path not in self.paths:
            return answer({"error": {"message": "not here"}}, "404 Not Found")
        self.requests += 1
        raw = self.reply(body)
        return answer(completion(body)) if raw is None else raw

    def __enter__(self) -> "RawServer":
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def slowly(data: bytes, seconds: float) -> Iterable[bytes]:
    """Single bytes, with a pause after each."""
    for byte in data:
        yield bytes([byte])
        time.sleep(seconds)


def endless(head: bytes, piece: bytes) -> Iterable[bytes]:
    """A beginning, then the same piece again and again until the client hangs up."""
    yield head
    while True:
        yield piece


def unused_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"http://127.0.0.1:{server.getsockname()[1]}/v1"


class Front(RawServer):
    """Stands before another model server, at the URL `behind`, whose completions it spoils.

    `spoil` changes right completions before they are sent.
    """

    def __init__(self, behind: str) -> None:
        super().__init__()
        self._behind = behind.removesuffix("/v1")
        self.spoil: Callable[[dict[str, Any]], None] = lambda completion: None

    def answer(self, path: str, body: dict[str, Any]) -> Raw:
        completes = path == "/v1/completions"
        self.requests += completes
        if completes and (raw := self.reply(body)) is not None:
            return raw
        data = json.dumps(body).encode() if body else None
        request = urllib.request.Request(self._behind + path, data, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request) as response:
                answered = response.read()
        except urllib.error.HTTPError as error:
            return answer(error.read(), f"{error.code} {error.reason}")
        if completes:
            parsed = json.loads(answered)
            self.spoil(parsed)
            answered = json.dumps(parsed).encode()
        return answer(answered)
