"""A registry of images on a port of this machine, without TLS, that wants a login. It has one small image."""

import base64
import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from weavegen.config import Config
from weavegen.sandbox import images

LOGIN = base64.b64encode(b"somebody:secret of the registry").decode()
MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"


def small_image() -> dict[str, bytes]:
    """What the registry answers, by the last part of the address."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        entry = tarfile.TarInfo("pulled.txt")
        entry.size = 3
        archive.addfile(entry, io.BytesIO(b"abc"))
    layer = packed.getvalue()
    settings = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {},
            "rootfs": {"type": "layers", "diff_ids": [digest(layer)]},
        }
    ).encode()
    kinds = {"application/vnd.docker.container.image.v1+json": settings}
    kinds["application/vnd.docker.image.rootfs.diff.tar"] = layer
    config, part = ({"mediaType": kind, "size": len(data), "digest": digest(data)} for kind, data in kinds.items())
    manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [part]}
    return {"": b"{}", "1": json.dumps(manifest).encode(), digest(settings): settings, digest(layer): layer}


def digest(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


class Registry(BaseHTTPRequestHandler):
    answers = small_image()
    status = 200
    """The status of all answers to those who are logged in."""

    def do_GET(self) -> None:
        logged_in = self.headers["Authorization"] == f"Basic {LOGIN}"
        body = self.answers.get(self.path.rpartition("/")[2], b"") if logged_in else b""
        self.send_response(self.status if logged_in else 401)
        self.send_header("WWW-Authenticate", 'Basic realm="images"')
        self.send_header("Retry-After", "0")
        self.send_header("Content-Type", MANIFEST if "/manifests/" in self.path else "application/octet-stream")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_HEAD = do_GET

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(config: Config, status: int = 200) -> Iterator[str]:
    """Start a registry for the images of an installation. Yields its address, below which the image is `small:1`."""
    kind = type("Registry", (Registry,), {"status": status})
    with ThreadingHTTPServer(("127.0.0.1", 0), kind) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"127.0.0.1:{server.server_address[1]}"
        known: Path = images.store(config) / "home/.config/containers/registries.conf.d" / "test.conf"
        known.parent.mkdir(parents=True, exist_ok=True)
        known.write_text(f'[[registry]]\nlocation = "{address}"\ninsecure = true\n')
        try:
            yield address
        finally:
            known.unlink()
            server.shutdown()


def log_in(address: str, file: Path) -> Path:
    """Write a file with the login, which only its owner can read."""
    file.write_text(json.dumps({"auths": {address: {"auth": LOGIN}}}))
    file.chmod(0o600)
    return file
