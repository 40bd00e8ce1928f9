"""Proxies that the environment names, between a client and a model server."""

import base64
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from weavegen.errors import TransientError, Unfit, UsageError
from weavegen.pool.http import Http
from weavegen.pool.served import serving


class Proxy(ThreadingHTTPServer):
    """Answers in the place of every server, and refuses to make tunnels."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str | None]] = []
        """Addresses, with the credentials that came with them."""
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                proxy.asked.append((self.path, self.headers["Proxy-Authorization"]))
                self.send_response(200 if self.command == "GET" else 403)
                self.end_headers()

            do_CONNECT = do_GET

            def log_message(self, format: str, *args: object) -> None:
                """Print nothing."""

        super().__init__(("127.0.0.1", 0), Handler)


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    for name in ("http_proxy", "https_proxy", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with Proxy() as proxy:
        threading.Thread(target=proxy.serve_forever, args=(0.02,)).start()
        for name in ("HTTP_PROXY", "HTTPS_PROXY"):
            monkeypatch.setenv(name, f"http://ann:p%40ss@127.0.0.1:{proxy.server_port}")
        yield proxy
        proxy.shutdown()


def test_a_proxy_gets_the_credentials_in_its_address(proxy: Proxy) -> None:
    http = Http("EMPTY", 5.0)
    assert http.get("http://model.example/v1/models") == b""
    with pytest.raises(TransientError):
        http.get("https://model.example/v1/models")
    http.close()
    credentials = f"Basic {base64.b64encode(b'ann:p@ss').decode()}"
    assert proxy.asked == [("http://model.example/v1/models", credentials), ("model.example:443", credentials)]


@pytest.mark.parametrize("address", ["proxy:3128", "socks5://me:hush@127.0.0.1:9", "http://proxy:99999"])
def test_a_proxy_that_can_not_be_used_is_one_line(address: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", address)
    with pytest.raises(Unfit, match="HTTP_PROXY has no address of an HTTP proxy"):
        Http("EMPTY", 5.0).get("http://model.example/v1/models")
    with pytest.raises(UsageError, match="HTTP_PROXY has no address of an HTTP proxy") as caught:
        serving({"http://model.example/v1": "EMPTY"}, None)
    assert "hush" not in str(caught.value)
    assert "\n" not in str(caught.value)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with pytest.raises(TransientError, match="no connection"):
        Http("EMPTY", 5.0).get("http://127.0.0.1:9/v1/models")
