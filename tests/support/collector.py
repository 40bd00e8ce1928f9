"""A simulation of OpenTelemetry's collector, on loopback."""

import json
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any


def all_spans(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [span for one in document["resourceSpans"] for scope in one["scopeSpans"] for span in scope["spans"]]


class Collector(HTTPServer):
    """Takes spans, as OpenTelemetry's collector does."""

    status = 200

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.spans: list[dict[str, Any]] = []


class Answer(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert self.path == "/v1/traces"
        assert self.headers["Content-Type"] == "application/json"
        if self.server.status == 200:
            self.server.spans += all_spans(body)
        self.send_response(self.server.status)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: object) -> None:
        pass
