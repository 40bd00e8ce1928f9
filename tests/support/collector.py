"""A simulated OpenTelemetry collector on loopback."""

import base64
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


def all_spans(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [span for part in document["resourceSpans"] for scope in part["scopeSpans"] for span in scope["spans"]]


def hexadecimal(span: dict[str, Any]) -> dict[str, Any]:
    """The span with ids in hexadecimal, as OTLP's JSON has them; protobuf's own JSON has ids in base64."""
    ids = ("traceId", "spanId", "parentSpanId")
    return span | {name: base64.b64decode(span[name]).hex() for name in ids if name in span}


class Collector(HTTPServer):
    """Receives spans, as OpenTelemetry's collector does."""

    status = 200

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.spans: list[dict[str, Any]] = []
        self.tenants: set[str | None] = set()
        """Values of the header Tenant."""


class Answer(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = ExportTraceServiceRequest.FromString(self.rfile.read(int(self.headers["Content-Length"])))
        assert self.path == "/v1/traces"
        assert self.headers["Content-Type"] == "application/x-protobuf"
        self.server.tenants.add(self.headers["Tenant"])
        if self.server.status == 200:
            self.server.spans += all_spans(MessageToDict(body, use_integers_for_enums=True))
        self.send_response(self.server.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass
