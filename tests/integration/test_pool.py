"""The pool over its own simulated servers: processes that are killed and restarted, threads that send requests."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from simulation.process import Process
from tests.support.waiting import until
from weavegen.errors import ModelError, Unserved
from weavegen.pool import pool as pools
from weavegen.pool.client import ModelClient
from weavegen.pool.metrics import NAMES
from weavegen.pool.pool import Pool
from weavegen.pool.survey import survey

PROMPT = "<s> [INST] # a trace [/INST]\n#startblock type: action\ndef action_"


@pytest.fixture
def sims(tmp_path: Path) -> Iterator[list[Process]]:
    processes = [Process(tmp_path, name, "--inter-token", "3", "--slots", "16") for name in ("a", "b")]
    yield processes
    for sim in processes:
        sim.kill()


@pytest.fixture
def pool(sims: list[Process]) -> Iterator[Pool]:
    made = Pool([sim.url for sim in sims], "EMPTY", None, timeout=20)
    yield made
    made.close()


def ask(pool: Pool, trace: int, home: str, n: int = 4) -> str:
    """URL of the server that answered."""

    def call(client: ModelClient) -> str:
        answer = client.sample(
            PROMPT, n=n, max_tokens=40, temperature=1, top_k=50, repetition_penalty=1, seed=trace, stop=("#end",)
        )
        assert len(answer.continuations) == n
        return client.base_url

    return pool.with_server(trace, home, n, call)


def test_traces_are_spread_and_stay(pool: Pool, sims: list[Process]) -> None:
    homes: Counter[str] = Counter()
    for _ in range(8):
        homes[pool.home(homes)] += 1
    assert list(homes.values()) == [4, 4]
    assert {ask(pool, 1, sims[1].url) for _ in range(5)} == {sims[1].url}


def test_a_server_is_killed_and_returns(pool: Pool, sims: list[Process]) -> None:
    stop = threading.Event()
    answered: list[tuple[float, int, str]] = []

    def trace(number: int) -> None:
        while not stop.is_set():
            url = ask(pool, number, sims[number % 2].url)
            answered.append((time.monotonic(), number, url))

    with ThreadPoolExecutor(12) as threads:
        futures = [threads.submit(trace, number) for number in range(12)]
        time.sleep(2)
        sims[0].kill()
        killed = time.monotonic()
        time.sleep(3)
        sims[0].start()
        started = time.monotonic()
        deadline = started + 60
        while not any(at > started and url == sims[0].url for at, _, url in answered) and time.monotonic() < deadline:
            time.sleep(0.1)
        time.sleep(1)
        stop.set()
        for future in futures:
            future.result()  # no trace saw an error
    meanwhile = [(number, url) for at, number, url in answered if killed < at < started]
    assert {url for _, url in meanwhile} == {sims[1].url}
    assert {number for number, _ in meanwhile} >= {0, 2, 4}  # traces whose home was down went on
    late = [url for at, number, url in answered if at > started and number % 2 == 0]
    assert sims[0].url in late


def test_a_permanent_error_is_not_tried_again(pool: Pool, sims: list[Process]) -> None:
    calls = []

    def call(client: ModelClient) -> None:
        calls.append(client.base_url)
        client.sample(
            "word " * 200_000, n=1, max_tokens=9, temperature=1, top_k=0, repetition_penalty=1, seed=1, stop=()
        )

    with pytest.raises(ModelError, match="maximum context length"):
        pool.with_server(1, sims[0].url, 1, call)
    assert calls == [sims[0].url]


def test_without_a_usable_server_requests_wait(
    pool: Pool, sims: list[Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "NO_SERVER_TIMEOUT_SECONDS", 1.0)
    for sim in sims:
        sim.kill()
    with pytest.raises(Unserved, match=r"no connection to .*, (once|\d+ times, the last) \d+ s ago"):
        ask(pool, 1, sims[0].url)
    monkeypatch.setattr(pools, "NO_SERVER_TIMEOUT_SECONDS", 60.0)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(ask, pool, 1, sims[0].url)
        sims[1].start()
        assert waiting.result(30) == sims[1].url


def test_a_survey(sims: list[Process]) -> None:
    with ThreadPoolExecutor(1) as threads:
        client = ModelClient(sims[0].url, "EMPTY", None)
        busy = threads.submit(
            client.sample, PROMPT, n=64, max_tokens=300, temperature=1, top_k=0, repetition_penalty=1, seed=1, stop=()
        )
        sims[1].kill()
        first, second = survey(dict.fromkeys([sim.url for sim in sims], "EMPTY"), 0.5)
        busy.result()
        client.close()
    assert (second.state, second.running) == ("away", None)
    assert "no connection" in str(second.why)
    assert first.model == "weavegen-sim"
    assert first.state in ("up", "full")
    assert first.running is not None
    assert first.generated_rate is not None
    assert 0 <= (first.prefix_hits or 0) <= 1


class Impatient(BaseHTTPRequestHandler):
    """Closes the connection at the request that comes after a pause."""

    protocol_version = "HTTP/1.1"
    answered: float | None = None

    def do_GET(self) -> None:
        if self.answered is not None and time.monotonic() - self.answered > 0.8:
            self.close_connection = True
            return
        metrics = "".join(f"{name} 0\n" for name in NAMES)
        body = (metrics if self.path == "/metrics" else '{"data": [{"id": "impatient"}]}').encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.answered = time.monotonic()

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_a_survey_reconnects_after_its_pause() -> None:
    """Servers close a connection that is idle for five seconds, and a survey may take as long."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Impatient) as server:
        threading.Thread(target=server.serve_forever).start()
        [row] = survey({f"http://127.0.0.1:{server.server_port}/v1": "EMPTY"}, 1.0)
        server.shutdown()
    assert (row.state, row.why, row.model, row.generated_rate) == ("up", None, "impatient", 0)


class Garbling(BaseHTTPRequestHandler):
    """Its first two answers have metrics that are not numbers."""

    answers = 0

    def do_GET(self) -> None:
        value = "NaN" if Garbling.answers < 2 else "3"
        Garbling.answers += 1
        self.send_response(200)
        self.end_headers()
        self.wfile.write("".join(f"{name} {value}\n" for name in NAMES).encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_invalid_metrics_do_not_end_the_watch_of_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "METRICS_INTERVAL_SECONDS", 0.05)
    monkeypatch.setattr(pools, "METRICS_RETRY_SECONDS", 0.1)
    with ThreadingHTTPServer(("127.0.0.1", 0), Garbling) as server:
        threading.Thread(target=server.serve_forever).start()
        url = f"http://127.0.0.1:{server.server_port}/v1"
        pool = Pool([url], "EMPTY", None, timeout=20)
        deadline = time.monotonic() + 20
        try:
            while (load := pool._router.servers[url].load) is None:
                assert time.monotonic() < deadline
                time.sleep(0.02)
        finally:
            pool.close()
            server.shutdown()
    assert load.running == 3


@pytest.mark.parametrize("value", ["NaN", "+Inf", "12e", ""])
@pytest.mark.parametrize("of", ["cache", "num_requests"])
def test_metrics_that_are_no_numbers_are_none(value: str, of: str) -> None:
    lines = "".join(f"{name} {value if of in name else 1}\n" for name in NAMES).encode()

    class Handler(Garbling):
        def do_GET(self) -> None:
            answer = b'{"data": [{"id": "m"}]}' if self.path == "/v1/models" else lines
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever).start()
        [row] = survey({f"http://127.0.0.1:{server.server_port}/v1": "EMPTY"}, 0.01)
        server.shutdown()
    assert (row.state, row.model, row.running) == ("up", "m", None)


def test_metrics_are_asked_for_again_and_old_ones_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "METRICS_INTERVAL_SECONDS", 0.02)
    monkeypatch.setattr(pools, "METRICS_RETRY_SECONDS", 0.1)
    running = "3"

    class Handler(Garbling):
        def do_GET(self) -> None:
            self.send_response(200 if running else 404)
            self.end_headers()
            self.wfile.write("".join(f"{name} {running}\n" for name in NAMES).encode())

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever).start()
        url = f"http://127.0.0.1:{server.server_port}/v1"
        pool = Pool([url], "EMPTY", None, timeout=20)
        found = pool._router.servers[url]
        try:
            until(lambda: found.load is not None and found.load.running == 3, "no metrics", seconds=20)
            running = ""
            until(lambda: found.load is None, "the load is that of the past", seconds=20)
            running = "5"
            until(lambda: found.load is not None and found.load.running == 5, "not asked again", seconds=20)
        finally:
            pool.close()
            server.shutdown()
