"""Two servers of one model give equal answers; one of them dies and returns."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.vllm_server import Server
from tests.support.waiting import until
from weavegen.errors import TransientError
from weavegen.kernel.steps import YesNo
from weavegen.pool.client import ModelClient
from weavegen.pool.pool import Pool

PROMPT = "<s> [INST] a lamp [/INST]\n"


def texts(client: ModelClient, max_tokens: int = 50) -> list[str]:
    sampled = client.sample(
        PROMPT, n=4, max_tokens=max_tokens, temperature=1.0, top_k=50, repetition_penalty=1.02, seed=11, stop=()
    )
    return [continuation.text for continuation in sampled.continuations]


def test_a_seed_means_the_same_on_either(client: ModelClient, second: Server) -> None:
    assert texts(ModelClient(second.url, "EMPTY", None)) == texts(client)


def test_a_server_that_hangs(client: ModelClient, second: Server) -> None:
    patient, other = (ModelClient(second.url, "EMPTY", None, timeout=timeout) for timeout in (120, 2))
    before = texts(patient)
    assert other.model == "tiny"
    second.stop_answering()
    with pytest.raises(TransientError, match="in time"):
        texts(other)
    second.go_on()
    assert texts(patient) == before


def test_a_server_that_dies_under_a_request_and_comes_back(client: ModelClient, second: Server) -> None:
    other = ModelClient(second.url, "EMPTY", None)
    before = texts(other)
    with ThreadPoolExecutor(1) as pool:
        lost = pool.submit(texts, other, 30_000)
        while not second.metrics().running:
            assert not lost.done()
        second.kill()
        with pytest.raises(TransientError):
            lost.result()
    assert not second.healthy()
    with pytest.raises(TransientError):
        texts(other)
    assert texts(client) == before  # the other server is not affected
    second.restart()
    assert texts(other) == before
    assert second.metrics().queries == 4 * other.encode(PROMPT).count  # its cache is empty


def test_a_pool_continues_while_one_of_its_servers_is_dead(server: Server, second: Server) -> None:
    pool = Pool([server.url, second.url], "EMPTY", None, timeout=120)
    stop, go_on = threading.Event(), threading.Event()
    go_on.set()
    answered: list[tuple[float, str, list[str], list[YesNo]]] = []

    def trace(number: int) -> None:
        home = (server, second)[number % 2].url
        while not stop.is_set():
            go_on.wait()
            url, found = pool.with_server(number, home, 4, lambda client: (client.base_url, texts(client)))
            asked = pool.with_server(number, home, 2, lambda client: client.yes_no([PROMPT, PROMPT + "?"], priority=1))
            answered.append((time.monotonic(), url, found, asked))

    with ThreadPoolExecutor(4) as threads:
        traces = [threads.submit(trace, number) for number in range(4)]
        try:
            until(lambda: {url for _, url, _, _ in answered} == {server.url, second.url})
            second.kill()
            dead = time.monotonic()
            until(lambda: sum(at > dead for at, *_ in answered) >= 8)
            go_on.clear()  # there are few cores, and the starting server needs them
            second.restart()
            go_on.set()
            back = time.monotonic()
            until(lambda: any(at > back and url == second.url for at, url, _, _ in answered))
        finally:
            stop.set()
            go_on.set()
        for one in traces:
            one.result()  # no request failed
    pool.close()
    assert {url for at, url, _, _ in answered if dead + 1 < at < back} <= {server.url}
    assert all(found == answered[0][2] for _, _, found, _ in answered)  # whichever server answered
    assert all(
        one.yes == pytest.approx(first.yes, rel=1e-3) and one.no == pytest.approx(first.no, rel=1e-3)
        for *_, asked in answered
        for one, first in zip(asked, answered[0][3], strict=True)
    )
