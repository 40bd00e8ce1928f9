"""Answers of model servers that are malformed, endless, refused or incomplete, over real sockets."""

import resource
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest

from tests.support.malformed_answers import MALFORMED, body, changed
from tests.support.raw_server import RawServer, answer, slowly
from tests.support.waiting import until
from weavegen.errors import Busy, ChatOnly, ModelError, TransientError, Unfit, Unserved
from weavegen.pool import http
from weavegen.pool import pool as pools
from weavegen.pool.client import ModelClient
from weavegen.pool.pool import Pool


@pytest.fixture
def server() -> Iterator[RawServer]:
    with RawServer() as server:
        yield server


def sample(client: ModelClient, n: int = 2) -> Any:
    return client.sample("# a trace", n=n, max_tokens=9, temperature=1, top_k=0, repetition_penalty=1, seed=1, stop=())


def test_malformed_answers_are_failures_of_the_server(server: RawServer) -> None:
    assert len(MALFORMED) >= 30
    client = ModelClient(server.url, "EMPTY", None, timeout=20)
    assert [answer.text for answer in sample(client).continuations] == ["Yes", "Yes"]
    asked = 0
    for name, reply in MALFORMED.items():
        server.reply = reply
        for _ in range(4):
            with pytest.raises(TransientError) as raised:
                sample(client)
            assert server.url in str(raised.value), name
            assert len(str(raised.value)) < 1000, name
            asked += 1
    assert asked >= 200
    server.reply = lambda request: None
    assert sample(client).prompt_tokens is None
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 2**20, "a process took more than 1 GiB"
    client.close()


@pytest.mark.parametrize("path", ["/v1/models", "/tokenize"])
def test_malformed_answers_of_other_kinds(server: RawServer, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = server.answer
    for name, reply in MALFORMED.items():
        if "choice" in name or "index" in name or "logprob" in name or "200 MB" in name:
            continue
        raw = reply({"prompt": "#"})
        monkeypatch.setattr(server, "answer", lambda at, body, raw=raw: raw if at == path else right(at, body))
        client = ModelClient(server.url, "EMPTY", None, timeout=20)
        with pytest.raises(TransientError):
            sample(client) if path == "/v1/models" else client.encode("#")
        client.close()


@pytest.mark.parametrize("head", [True, False])
def test_an_answer_is_bounded_in_time_and_not_only_between_bytes(server: RawServer, head: bool) -> None:
    slow = slowly(b" " * 1000 if not head else answer(b"{}"), 0.1)
    server.reply = lambda request: slow if head else (part for part in [answer(b"", length=1000), *slow])
    client = ModelClient(server.url, "EMPTY", "raw", timeout=1.5)
    began = time.monotonic()
    with pytest.raises(TransientError, match=r"did not answer in time \(1.5 s\)"):
        sample(client)
    assert 1 < time.monotonic() - began < 4
    client.close()


class Patient(BaseHTTPRequestHandler):
    """Answers after a pause, on a connection that stays open."""

    protocol_version = "HTTP/1.1"
    connections: ClassVar[set[Any]] = set()

    def do_GET(self) -> None:
        self.connections.add(self.client_address)
        time.sleep(0.6)
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_a_connection_is_used_again_with_its_full_time() -> None:
    """The time that one answer left unused does not limit the next request."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Patient) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,)).start()
        link = http.Http("EMPTY", 1.0)
        for _ in range(3):
            assert link.get(f"http://127.0.0.1:{server.server_port}/") == b"{}"
        link.close()
        server.shutdown()
    assert len(Patient.connections) == 1


def test_statuses(server: RawServer) -> None:
    client = ModelClient(server.url, "secret-key", None, timeout=5)
    error = b'{"error": {"message": "CUDA out of memory, secret-key"}}'
    expected: dict[str, tuple[type[Exception], str]] = {
        "400 Bad Request": (ModelError, "CUDA"),
        "413 Too Large": (ModelError, "CUDA"),
        "401 Unauthorized": (Unfit, "check OPENAI_API_KEY"),
        "403 Forbidden": (Unfit, "check OPENAI_API_KEY"),
        "404 Not Found": (Unfit, "ends in /v1"),
        "402 Payment Required": (TransientError, "402"),
        "418 I'm a teapot": (TransientError, "418"),
        "500 Internal Server Error": (TransientError, r"answered 500: CUDA out of memory, \*\*\*"),
        "503 Service Unavailable": (Busy, "503"),
    }
    for status, (kind, text) in expected.items():
        server.reply = body(error, status)
        with pytest.raises(kind, match=text):
            sample(client)
    server.reply = body(b"", "307 Temporary Redirect", "Location: http://elsewhere/v1")
    with pytest.raises(Unfit, match="a redirect to http://elsewhere/v1: give the server's own address"):
        sample(client)
    asked = server.requests
    for value, seconds in (("7", 7.0), ("-7", 0.0), ("x", None), ("nan", 0.0)):
        server.reply = body(error, "429 Too Many Requests", f"Retry-After: {value}")
        with pytest.raises(Busy) as busy:
            sample(client)
        assert busy.value.seconds == seconds
    assert server.requests == asked + 4, "a request was repeated"
    client.close()


def test_a_server_that_a_model_has_left_is_unfit(server: RawServer) -> None:
    client = ModelClient(server.url, "EMPTY", "raw", timeout=5)
    sample(client)
    right = server.answer
    server.reply = body(b'{"error": {"message": "The model `raw` does not exist."}}', "404 Not Found")
    models = answer({"data": [{"id": "other"}]})
    server.answer = (  # type: ignore[method-assign]
        lambda path, body: models if path == "/v1/models" else right(path, body)
    )
    with pytest.raises(Unfit, match="has no model 'raw'"):
        sample(client)
    client.close()


def test_scores_need_logprobs_with_mass(server: RawServer) -> None:
    client = ModelClient(server.url, "EMPTY", None, timeout=5)
    [answered] = client.yes_no(["Is it?"])
    assert answered.yes > answered.no
    for missing in (None, {}, {"top_logprobs": None}, {"top_logprobs": []}, {"top_logprobs": [{}]}):
        server.reply = changed(logprobs=missing)
        with pytest.raises(Unfit, match="without the logprobs"):
            client.yes_no(["Is it?", "Is it not?"])
        assert len(sample(client).continuations) == 2  # which needs none
        with pytest.raises(Unfit):
            client.probe(5)
    server.reply = changed(logprobs={"top_logprobs": [{"The": -0.1, "A": -2.0}]})
    with pytest.raises(ModelError, match="raw gives no probability to yes or no"):
        client.yes_no(["Is it?", "Is it not?"])
    client.close()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "METRICS_INTERVAL_SECONDS", 0.1)
    monkeypatch.setattr(pools, "NO_SERVER_TIMEOUT_SECONDS", 1.0)


@pytest.mark.usefixtures("quick")
def test_a_server_without_logprobs_rests_and_no_request_fails(server: RawServer) -> None:
    server.reply = changed(logprobs=None)
    pool = Pool([server.url], "EMPTY", None, timeout=5)
    for _ in range(2):
        with pytest.raises(Unserved, match="without the logprobs"):
            pool.with_server(1, server.url, 1, lambda client: client.yes_no(["Is it?"]))
    assert "without the logprobs" in str(pool.trouble())
    assert pool.take_health()[server.url].failures.keys() == {"unfit"}
    server.reply = lambda request: None
    until(lambda: pool.trouble() is None, "the server does not return")
    assert pool.with_server(1, server.url, 1, lambda client: client.yes_no(["Is it?"]))
    taken = pool.take_health()[server.url]
    assert taken.answered
    assert [failures.since_ok for failures in taken.failures.values()] in ([], [0])
    pool.close()


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_a_server_that_refuses_the_probe_is_back(server: RawServer, path: str) -> None:
    server.paths, server.reply = (path,), body(b"", "500 Internal Server Error")
    pool = Pool([server.url], "EMPTY", None, timeout=5)
    for client in pool._clients.values():
        client.chat_only = "chat" in path
    ask = (lambda client: client.chat.sample("raw", [])) if "chat" in path else sample
    with pytest.raises(Unserved, match="answered 500"):
        pool.with_server(1, server.url, 1, ask)
    server.reply = body(b'{"error": {"message": "no max_tokens, no logprobs"}}', "400 Bad Request")
    until(lambda: pool.trouble() is None, "the server does not return", seconds=10)
    pool.close()


def test_a_server_may_come_back_with_another_api(server: RawServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.paths = ("/v1/completions", "/v1/chat/completions")
    right, missing = server.answer, "/v1/completions"
    lost = answer(b"{}", "404 Not Found")
    monkeypatch.setattr(server, "answer", lambda at, body: lost if at == missing else right(at, {"prompt": "", **body}))
    client = ModelClient(server.url, "EMPTY", None)
    with pytest.raises(ChatOnly):
        sample(client)
    missing = "/v1/chat/completions"
    with pytest.raises(Unfit, match="chat/completions"):
        client.probe(1)
    client.probe(1)
    assert sample(client)
    client.close()


def test_the_probe_of_a_chat_api_has_its_own_time(server: RawServer) -> None:
    server.paths, server.reply = ("/v1/chat/completions",), lambda request: slowly(answer(b"{}"), 0.2)
    client = ModelClient(server.url, "EMPTY", None, timeout=60)
    client.chat_only = True
    with pytest.raises(TransientError, match=r"did not answer in time \(1 s\)"):
        client.probe(1)
    client.close()


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("status", ["401 Unauthorized", "501 Not Implemented", "302 Found"])
def test_metrics_that_a_gateway_does_not_give_are_no_failure(
    server: RawServer, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    right, asked = server.answer, []

    def guarded(at: str, body: dict[str, Any]) -> Any:
        asked.append(at)
        return right(at, body) if at.startswith("/v1/") else answer(b"", status)

    monkeypatch.setattr(server, "answer", guarded)
    pool = Pool([server.url], "EMPTY", None, timeout=5)
    until(lambda: "/metrics" in asked)
    time.sleep(0.5)
    assert asked.count("/metrics") == 1
    assert pool.trouble() is None
    assert pool.take_health() == {}
    assert pool.with_server(1, server.url, 1, sample)
    pool.close()


@pytest.mark.usefixtures("quick")
def test_retry_after_is_the_rest_of_a_server(server: RawServer) -> None:
    server.reply = body(b"slow down", "429 Too Many Requests", "Retry-After: 2")
    pool = Pool([server.url], "EMPTY", None, timeout=5)
    with pytest.raises(Unserved, match=r"answered 429: slow down, (once|\d times)"):
        pool.with_server(1, server.url, 2, sample)
    asked, began = server.requests, time.monotonic()
    server.reply = lambda request: None
    time.sleep(0.5)
    assert server.requests == asked, "it was asked while it rested"
    until(lambda: pool.trouble() is None, "the server does not return", seconds=10)
    assert time.monotonic() - began < 5
    assert pool.with_server(1, server.url, 2, sample)
    pool.close()
