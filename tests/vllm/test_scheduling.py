"""The order of requests, the effect of the prefix cache, and the server's counters."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from http.client import HTTPConnection

import pytest

from tests.support import ROOT
from tests.support.vllm_server import SLOTS, Server
from tests.support.waiting import until
from weavegen.pool.client import ModelClient
from weavegen.pool.metrics import Metrics
from weavegen.pool.tokens import Sampled, Tokens

BLOCK = 128
"""Tokens in a cache block of vLLM's CPU backend. Only whole blocks are reused."""

LongPrompt = Callable[[str, int], list[int]]


def sample(client: ModelClient, prompt: str | list[int], n: int, max_tokens: int, priority: int = 0) -> Sampled:
    return client.sample(
        prompt if isinstance(prompt, str) else Tokens.of(prompt),
        n=n,
        max_tokens=max_tokens,
        temperature=1.0,
        top_k=50,
        repetition_penalty=1.0,
        seed=3,
        stop=(),
        priority=priority,
    )


def idle(server: Server) -> Metrics:
    """The server's counters once no request is running."""
    until(lambda: (now := server.metrics()).running == now.waiting == 0)
    return server.metrics()


@contextmanager
def endless(server: Server, priority: int) -> Iterator[None]:
    """A request that takes all slots of the server until the client disconnects at the end."""
    body = {"model": "tiny", "prompt": "<s>", "n": SLOTS, "max_tokens": 30_000, "top_k": 50, "priority": priority}
    with closing(HTTPConnection("127.0.0.1", server.port, timeout=60)) as connection:
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        yield


@contextmanager
def busy(server: Server) -> Iterator[None]:
    """All slots are taken while this context is open."""
    idle(server)
    with endless(server, priority=0):
        until(lambda: server.metrics().running == SLOTS)
        yield
        assert server.metrics().running == SLOTS


def test_a_disconnected_client_frees_its_slots(server: Server) -> None:
    """So a killed worker costs the server nothing more."""
    with busy(server):
        before = server.metrics().generated
    assert idle(server).generated - before < SLOTS * 10_000


@pytest.mark.parametrize(
    ("second", "last", "winner"), [(5, 5, "first"), (3, 1, "last")], ids=["equal", "the last is urgent"]
)
def test_lower_priority_values_overtake(
    client: ModelClient, server: Server, second: int, last: int, winner: str
) -> None:
    """Three requests wait. The second never ends, so of the two others only the one before it is served."""

    def ask(name: str, priority: int) -> None:
        sample(client, f"<s> {name} of {last}", n=2, max_tokens=10, priority=priority)

    def waiting(count: int) -> None:
        until(lambda: server.metrics().waiting == count)

    with ThreadPoolExecutor(2) as pool:
        with ExitStack() as held:
            with busy(server):
                asked = {"first": pool.submit(ask, "first", 5)}
                waiting(2)
                held.enter_context(endless(server, second))
                waiting(2 + SLOTS)
                asked["last"] = pool.submit(ask, "last", last)
                waiting(2 + SLOTS + 2)
            asked[winner].result(60)
            waiting(2)
            assert [name for name, future in asked.items() if future.done()] == [winner]
        for future in asked.values():
            future.result(60)


@pytest.fixture(scope="module")
def long_prompt(client: ModelClient) -> LongPrompt:
    """(name, tokens) -> a prompt that shares no prefix with prompts of another name."""
    body = client.encode((ROOT / "ARCHITECTURE.md").read_text()).ids

    def make(name: str, tokens: int) -> list[int]:
        return [*client.encode(f"<s> {name}\n").ids, *body][:tokens]

    return make


def test_a_prompt_that_extends_another_finds_it_cached(client: ModelClient, long_prompt: LongPrompt) -> None:
    """As a trace's prompts extend one another from block to block."""
    prompt = long_prompt("extended", 1000)
    first = sample(client, prompt, 1, 20)
    assert (first.prompt_tokens, first.cached_tokens) == (1000, 0)
    again = sample(client, prompt, 1, 20)
    assert again.cached_tokens == 999 // BLOCK * BLOCK
    [one], [other] = first.continuations, again.continuations
    assert (other.text, other.token_ids) == (one.text, one.token_ids)
    assert other.logprobs == pytest.approx(one.logprobs, abs=1e-4)  # sums in another order
    longer = sample(client, [*prompt, *(one.token_ids or ()), *prompt[:300]], 1, 1)
    assert longer.prompt_tokens == 1320
    assert longer.cached_tokens == 1020 // BLOCK * BLOCK  # what was sampled is cached as well
    assert sample(client, [*prompt[:500], 7, *prompt[500:]], 1, 1).cached_tokens == 500 // BLOCK * BLOCK


def test_a_question_finds_the_candidates_prompt_cached(
    client: ModelClient, server: Server, long_prompt: LongPrompt
) -> None:
    """Evaluating costs the question alone, not the trace over again."""
    prompt = long_prompt("judged", 1000)
    sample(client, prompt, 1, 1)
    before = idle(server)
    questions = [client.encode(f"\n#q: Is it {word}? ").ids for word in ("so", "right")]
    client.yes_no([Tokens.of([*prompt, *question]) for question in questions])
    after = idle(server)
    assert after.hits - before.hits == 2 * (1000 // BLOCK * BLOCK)


def test_prompt_logprobs_find_nothing_cached(client: ModelClient, server: Server, long_prompt: LongPrompt) -> None:
    """Why weavegen asks for none: with them the whole prompt is computed again, each time."""
    prompt = long_prompt("prompt logprobs", 600)
    sample(client, prompt, 1, 1)
    cached = []
    for options in ({}, {"prompt_logprobs": 0}):
        answer = server.post("/v1/completions", prompt=prompt, max_tokens=1, **options)
        cached.append(answer["usage"]["prompt_tokens_details"]["cached_tokens"])
    assert cached == [600 // BLOCK * BLOCK, 0]


def test_what_the_server_counts(client: ModelClient, server: Server, long_prompt: LongPrompt) -> None:
    prompt = long_prompt("counted", 700)
    before = idle(server)
    sample(client, prompt, 1, 10)
    once = idle(server)
    assert once.queries - before.queries == once.prompt - before.prompt == 700
    assert once.hits == before.hits
    assert once.generated - before.generated == 10
    sample(client, prompt, 3, 10)
    twice = idle(server)
    assert twice.queries - once.queries == 3 * 700
    assert twice.hits - once.hits == 3 * (700 // BLOCK * BLOCK)
    assert twice.generated - once.generated == 30
    assert twice.preemptions == before.preemptions == 0
    assert twice.cache < 0.01


def test_cache_usage_while_requests_run(server: Server) -> None:
    assert idle(server).cache == 0
    with busy(server):
        assert server.metrics().cache > 0
    assert idle(server).cache == 0
