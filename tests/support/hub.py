"""A stand-in (simulated) for the Hugging Face hub: the part of its HTTP interface that an upload needs, on loopback.

As on the hub, text files are in the commit itself, and Parquet files are sent by Git LFS before it.
"""

import base64
import contextlib
import hashlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

Json = dict[str, Any]
TOKEN = "hf_simulated"


@dataclass
class Hub:
    """What the stand-in has received."""

    url: str = ""
    cache: Path = Path()
    """Where its clients keep what they download."""
    created: list[Json] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    """By path in the repository."""
    messages: list[str] = field(default_factory=list)
    """The messages of commits."""
    stored: dict[str, bytes] = field(default_factory=dict)
    """Objects of Git LFS by SHA-256."""
    refuses: bool = False
    """Whether it answers commits with 403."""


class Handler(BaseHTTPRequestHandler):
    hub: Hub

    def answer(self, value: object, status: int = 200, **headers: str) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        for name, text in headers.items():
            self.send_header(name, text)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def may(self) -> bool:
        """Whether the request has the token. If not, it is answered."""
        if self.headers.get("Authorization") == f"Bearer {TOKEN}":
            return True
        self.answer({"error": "Invalid credentials"}, 401)
        return False

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        if not self.may():
            return
        place, _, name = self.path.partition("/resolve/main/")
        if place == "/datasets/me/data" and name in self.hub.files:
            data = self.hub.files[name]
            self.send_response(200)
            digest = hashlib.sha256(data).hexdigest()
            headers = {"Content-Length": str(len(data)), "X-Repo-Commit": digest[:40], "ETag": f'"{digest}"'}
            for header, value in headers.items():
                self.send_header(header, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(data)
        elif self.path.startswith("/api/datasets/") and "/tree/" in self.path:
            self.answer(
                [{"type": "file", "path": path, "size": len(data), "oid": "0"} for path, data in self.hub.files.items()]
            )
        elif self.path.startswith("/api/datasets/"):
            siblings = [{"rfilename": path} for path in self.hub.files]
            self.answer({"id": "me/data", "sha": "0" * 40, "siblings": siblings, "private": True, "tags": []})
        else:
            self.answer({"error": f"the stand-in has no {self.path}"}, 404, **{"X-Error-Code": "EntryNotFound"})

    def do_PUT(self) -> None:
        data = self.body()
        name = self.path.rpartition("/")[2]
        assert hashlib.sha256(data).hexdigest() == name
        self.hub.stored[name] = data
        self.answer({})

    def do_POST(self) -> None:
        body = self.body()
        if not self.may():
            return
        if self.path == "/api/repos/create":
            self.hub.created.append(json.loads(body))
            self.answer({"url": f"{self.hub.url}/datasets/me/data"})
        elif self.path == "/api/validate-yaml":
            front = json.loads(body)["content"].split("---\n")[1]
            assert isinstance(yaml.safe_load(front), dict)
            self.answer({"warnings": [], "errors": []})
        elif "/preupload/" in self.path:
            modes = [
                {
                    "path": file["path"],
                    "shouldIgnore": False,
                    "uploadMode": "lfs" if is_large(file["path"]) else "regular",
                }
                for file in json.loads(body)["files"]
            ]
            self.answer({"files": modes})
        elif self.path.endswith("/info/lfs/objects/batch"):
            objects = [
                {**one, "actions": {"upload": {"href": f"{self.hub.url}/lfs/{one['oid']}"}}}
                for one in json.loads(body)["objects"]
            ]
            self.answer({"transfer": "basic", "objects": objects})
        elif "/commit/" in self.path and self.hub.refuses:
            self.answer({"error": "You have no right to write here"}, 403)
        elif "/commit/" in self.path:
            self.commit([json.loads(line) for line in body.splitlines()])
            oid = "1" * 40
            self.answer({"commitUrl": f"{self.hub.url}/datasets/me/data/commit/{oid}", "commitOid": oid})
        else:
            self.answer({"error": f"the stand-in has no {self.path}"}, 404)

    def commit(self, lines: list[Json]) -> None:
        for line in lines:
            value = line["value"]
            if line["key"] == "header":
                self.hub.messages.append(value["summary"])
            elif line["key"] == "file":
                assert value["encoding"] == "base64"
                self.hub.files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                self.hub.files[value["path"]] = self.hub.stored[value["oid"]]
            elif line["key"] == "deletedFile":
                del self.hub.files[value["path"]]
            else:
                raise AssertionError(line["key"])

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


def is_large(path: str) -> bool:
    return path.endswith(".parquet")


@contextlib.contextmanager
def standing_in() -> Iterator[Hub]:
    """A stand-in that listens on a free port."""
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"hub": hub}))
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
