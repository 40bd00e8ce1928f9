"""The simulation's load model: queue, step times, cache and counters in virtual time, and the same over HTTP."""

import asyncio
import json
import math
import random
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.types import Message

from simulation import MODEL, options, parameters, tokenizer
from simulation.batch import Batch, Sequence
from simulation.cache import BLOCK, Cache, Prompt
from simulation.load import Engine
from simulation.parameters import PRESETS, Faults, Load
from simulation.server import app
from weavegen.errors import UsageError
from weavegen.nano.counters import REASONS

# ------------------------------------------------------------------------------------------- virtual time


def prompt(tokens: int, first: int = 0) -> Prompt:
    """Tokens first, first+1, ...: two prompts with the same first token begin alike."""
    return Prompt(tokenizer.pack(range(first, first + tokens)))


def sequence(tokens: int, generate: int, *, first: int = 0, priority: int = 0) -> Sequence:
    output = tokenizer.pack(range(500_000, 500_000 + generate))
    return Sequence(prompt(tokens, first), output, "length", priority)


def engine(**numbers: Any) -> Batch:
    return Batch(Load(**({"max_model_len": 1000, "cache_tokens": 1_000_000} | numbers)))


def send(batch: Batch, *sequences: Sequence, now: float = 0.0) -> None:
    batch.advance(now)
    for one in sequences:
        batch.add(one)
    batch.advance(now)


def play(batch: Batch) -> dict[Sequence, float]:
    """Until nothing is left to do. When each sequence ended."""
    ended: dict[Sequence, float] = {}
    while (now := batch.next_event()) is not None:
        ended |= dict.fromkeys(batch.advance(now), now)
    assert not batch.running
    assert not batch.waiting
    assert batch.usage == 0
    return ended


@pytest.mark.parametrize("together", [1, 4])
def test_a_step_takes_what_the_batch_makes_it(together: int) -> None:
    batch = engine(inter_token=10, per_sequence=2)
    sequences = [sequence(5, 100, first=100 * number) for number in range(together)]
    send(batch, *sequences)
    assert list(play(batch).values()) == [pytest.approx(100 * (0.010 + 0.002 * together))] * together


def test_long_contexts_make_steps_longer() -> None:
    batch = engine(inter_token=10, per_context=1000)
    one = sequence(50, 5)
    send(batch, one)
    # The first token comes from the prompt's step; then contexts of 51, 52, 53, 54 tokens are read.
    assert play(batch)[one] == pytest.approx(5 * 0.010 + 0.001 * (51 + 52 + 53 + 54))


def test_prompts_slow_down_whoever_decodes() -> None:
    batch = engine(inter_token=10, prefill=10_000, step_tokens=300, slots=300)
    old, new = sequence(10, 100), sequence(900, 50, first=5000)
    send(batch, old)
    send(batch, new, now=0.3055)
    ended = play(batch)
    assert ended[old] == pytest.approx(100 * 0.010 + (10 + 900) / 10_000)
    # It joins at the next boundary: the first at 11 ms, then every 10 ms. 299 + 299 + 299 + 3 tokens: four steps.
    assert ended[new] == pytest.approx(0.311 + 4 * 0.010 + 900 / 10_000 + 49 * 0.010)


def test_zero_times_take_no_time() -> None:
    batch = engine(slots=2)
    sequences = [sequence(10, 40, first=100 * number) for number in range(9)]
    send(batch, now=7.0)
    for one in sequences:
        batch.add(one)
    assert batch.advance(7.0) == sequences
    assert batch.slot_seconds == 0


def test_lower_priorities_come_first_then_who_came_first() -> None:
    batch = engine(inter_token=10, slots=1)
    first, late, later, urgent = (sequence(5, 3, priority=priority) for priority in (0, 5, 5, -1))
    send(batch, first)
    send(batch, late, later, urgent, now=0.001)
    assert len(batch.waiting) == 3
    assert list(play(batch)) == [first, urgent, late, later]


def test_first_come_first_served() -> None:
    batch = engine(inter_token=10, slots=1, scheduling_policy="fcfs")
    sequences = [sequence(5, 3, priority=priority) for priority in (0, 5, 5, -1)]
    send(batch, *sequences)
    assert list(play(batch)) == sequences


def test_a_full_cache_preempts_the_least_urgent_and_it_goes_on_later() -> None:
    batch = engine(inter_token=10, cache_tokens=200, max_model_len=200)
    urgent, other = sequence(60, 90, priority=1), sequence(60, 50, first=5000, priority=2)
    send(batch, other, urgent)
    batch.advance(0.405)  # 2 x 60 tokens, and 40 more each: nothing fits any longer
    assert set(batch.running) == {urgent}
    assert batch.waiting == {other}
    assert batch.counters.preemptions == 1
    ended = play(batch)
    assert list(ended) == [urgent, other]
    assert ended[urgent] == pytest.approx(0.900)
    assert ended[other] == pytest.approx(0.900 + 10 * 0.010)  # what it had generated it keeps
    assert batch.counters.generation_tokens == 140
    assert batch.counters.queries == 120


def test_who_does_not_fit_waits_and_nobody_overtakes() -> None:
    batch = engine(inter_token=10, cache_tokens=200, max_model_len=200)
    first, large, small = sequence(100, 20), sequence(150, 20, first=5000), sequence(10, 20, first=9000)
    send(batch, first, large, small)
    assert set(batch.running) == {first}
    assert batch.usage == pytest.approx(0.5)
    assert list(play(batch)) == [first, large, small]


def test_siblings_hold_their_prompt_once_and_compute_it_once() -> None:
    batch = engine(inter_token=10, prefill=1000, cache_tokens=1000)
    shared = prompt(330)
    siblings = [Sequence(shared, tokenizer.pack(range(9)), "stop") for _ in range(4)]
    send(batch, *siblings)
    assert batch.usage == pytest.approx((320 + 4 * 10) / 1000)
    assert [one.cached for one in siblings] == [0, 320, 320, 320]
    assert play(batch)[siblings[0]] == pytest.approx((330 + 3 * 10) / 1000 + 9 * 0.010)
    assert (batch.counters.queries, batch.counters.hits) == (4 * 330, 3 * 320)


def test_slot_seconds_are_exact_between_any_two_moments() -> None:
    batch = engine(inter_token=10, slots=2)
    send(batch, *(sequence(5, 100, first=100 * number) for number in range(3)), now=5.0)
    for now, expected in ((5.0, 0.0), (5.123, 0.246), (6.0, 2.0), (6.5, 2.5), (7.0, 3.0), (9.0, 3.0)):
        batch.advance(now)
        batch.count_slots(now)
        assert batch.slot_seconds == pytest.approx(expected)


def test_aborted_sequences_free_their_place() -> None:
    batch = engine(inter_token=10, slots=1)
    running, waiting, next_one = sequence(50, 100), sequence(5, 9, first=900), sequence(5, 10, first=950)
    send(batch, running, waiting, next_one)
    batch.advance(0.105)
    batch.abort([running, waiting], 0.105)
    batch.advance(0.105)
    assert play(batch) == {next_one: pytest.approx(0.205)}
    assert batch.counters.finished == {"abort": 2, "length": 1}
    assert batch.slot_seconds == pytest.approx(0.205)
    batch.abort([running], 9.0)
    assert batch.counters.finished["abort"] == 2


def test_what_was_not_computed_is_not_found_later() -> None:
    batch = engine(inter_token=10, prefill=1000, step_tokens=300, slots=9)
    siblings = [Sequence(prompt(900), tokenizer.pack(range(9))) for _ in range(3)]
    send(batch, *siblings)
    batch.advance(0.4)  # one step of 300 tokens is over
    batch.abort(siblings, 0.4)
    assert batch.cache.hits(prompt(900)) == 256
    assert batch.cache.held == 0


@dataclass(frozen=True)
class Visit:
    """A sequence that arrives `at` some time, and may be dropped `patience` seconds later."""

    at: float
    sequence: Sequence
    patience: float | None


@st.composite
def traffic(draw: st.DrawFn) -> tuple[Load, list[Visit]]:
    number = st.integers
    load = Load(
        slots=draw(number(1, 6)),
        inter_token=draw(st.sampled_from([0, 3.0])),
        per_sequence=draw(st.sampled_from([0, 0.7])),
        per_context=draw(st.sampled_from([0, 11.0])),
        prefill=draw(st.sampled_from([0, 900.0])),
        step_tokens=draw(number(6, 90)),
        cache_tokens=draw(number(300, 700)),
        max_model_len=300,
        scheduling_policy=draw(st.sampled_from(["fcfs", "priority"])),
        prefix_cache=draw(st.booleans()),
    )
    visits = []
    for order in range(draw(number(1, 12))):
        one = sequence(
            draw(number(1, 200)), draw(number(0, 100)), first=draw(number(0, 3)), priority=draw(number(-1, 1))
        )
        # Never at the very moment when a step ends: rounding would decide which step is the first with it.
        at = draw(number(0, 900)) / 1000 + math.sqrt(2) / 10_000 * order
        patience = draw(st.none() | st.integers(0, 300))
        visits.append(Visit(at, one, None if patience is None else patience / 1000 + math.sqrt(3) / 10_000))
    return load, visits


@given(traffic(), st.integers(0, 2**32))
@settings(deadline=None, max_examples=150)
def test_all_that_comes_ends_and_how_often_one_looks_changes_nothing(
    coming: tuple[Load, list[Visit]], seed: int
) -> None:
    load, visits = coming
    exact, late = (run(load, visits, chance) for chance in (None, random.Random(seed)))
    assert [end[:2] for end in exact] == [end[:2] for end in late]
    for (_, _, at), (_, _, seen) in zip(exact, late, strict=True):
        assert at - 1e-6 <= seen <= at + LOOK


LOOK = 0.05
"""Seconds between two looks at most."""


def run(load: Load, visits: list[Visit], chance: random.Random | None) -> list[tuple[int, int, float]]:
    """(arrival, cached tokens, when it was seen to have ended) of each sequence in order of their ends.

    With `chance` one looks at random, else when something happens.
    """
    batch, ended, now = Batch(load), list[tuple[int, int, float]](), 0.0

    def look(at: float) -> None:
        nonlocal now
        ended.extend((one.arrival, one.cached, at) for one in batch.advance(at))
        now = at
        assert len(batch.running) <= load.slots
        assert batch.usage <= 1
        assert batch.cache.held + batch.cache.free <= load.cache_tokens

    def wait(until: float) -> None:
        while (event := batch.next_event()) is not None:
            at = event if chance is None else min(event, now + chance.uniform(0, LOOK))
            if at > until:
                break
            look(at)

    plan: list[tuple[float, int, Sequence]] = []
    for number, visit in enumerate(visits):
        one = replace(visit.sequence)
        plan.append((visit.at, number, one))
        if visit.patience is not None:
            plan.append((visit.at + visit.patience, -1, one))
    for at, number, one in sorted(plan, key=lambda item: item[:2]):
        wait(at)
        look(at)
        if number < 0:
            batch.abort([one], at)
        else:
            batch.add(one)
        look(at)
    wait(math.inf)
    count = batch.counters
    assert len(ended) == count.finished["length"]
    assert count.finished.total() == len(visits)
    assert batch.usage == 0
    if not count.finished["abort"]:
        assert count.generation_tokens == sum(visit.sequence.tokens for visit in visits)
        assert count.prompt_tokens == sum(visit.sequence.prompt.tokens for visit in visits)
    return ended


# ------------------------------------------------------------------------------------------- prefix cache


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [(1, 0), (16, 0), (17, 16), (32, 16), (33, 32), (256, 240), (257, 256), (600, 592), (700, 640), (800, 640)],
)
def test_hits_come_in_blocks_and_the_last_token_is_computed(tokens: int, expected: int) -> None:
    cache = Cache(10_000, shares=True)
    cache.keep(prompt(650))
    assert cache.hits(prompt(tokens)) == expected


def test_hits_end_where_prompts_part() -> None:
    cache = Cache(10_000, shares=True)
    cache.keep(prompt(1000))
    other = tokenizer.pack([*range(300), 7, *range(301, 1000)])
    assert cache.hits(Prompt(other)) == 288
    assert cache.hits(prompt(1000, first=1)) == 0


def test_generated_tokens_are_cached_too_but_for_the_last() -> None:
    batch = engine(inter_token=10)
    one = sequence(100, 60)
    send(batch, one)
    play(batch)
    longer = one.prompt.goes_on(one.output + tokenizer.pack(range(40)))
    assert batch.cache.hits(longer) == 159 // BLOCK * BLOCK


def test_hits_are_counted_as_vllm_counts_them() -> None:
    """The requests of docs/simulation.md; vLLM's numbers differ by the size of its blocks alone."""
    chance = random.Random(0)
    ids = [chance.randrange(9000) for _ in range(1000)]
    new = [chance.randrange(9000, 10_000) for _ in range(300)]
    output = [chance.randrange(9000) for _ in range(200)]
    batch = engine(inter_token=10, max_model_len=2000)

    def counted(*prompts: list[int], generate: int = 1, n: int = 1) -> tuple[int, int]:
        before = batch.counters.queries, batch.counters.hits
        for one in prompts:
            shared, text = Prompt(tokenizer.pack(one)), tokenizer.pack(output[:generate])
            for _ in range(n):
                batch.add(Sequence(shared, text))
        batch.advance(batch.next_event() or 0.0)
        play(batch)
        return batch.counters.queries - before[0], batch.counters.hits - before[1]

    assert counted(ids, generate=20, n=3) == (3000, 2 * 992)
    assert counted(ids, generate=20) == (1000, 992)
    assert counted(ids + new, ids[:500] + new) == (2100, 992 + 496)
    assert counted(ids, generate=200) == (1000, 992)
    assert counted(ids + output + new[:40]) == (1240, 1184)


def test_the_least_recently_used_is_given_up_its_end_first() -> None:
    cache = Cache(3 * 512, shares=True)
    for first in (0, 1000, 2000):
        cache.keep(prompt(512, first))
    cache.keep(prompt(512, 0))
    cache.keep(prompt(256, 3000))
    cache.shrink(0)
    assert [cache.hits(prompt(513, first)) for first in (0, 1000, 2000, 3000)] == [512, 256, 512, 256]


def test_what_is_held_is_not_given_up() -> None:
    cache = Cache(1000, shares=True)
    cache.hold(prompt(512))
    cache.keep(prompt(512, 1000))
    cache.shrink(0)
    assert (cache.held, cache.free) == (512, 256)
    assert cache.missing(prompt(600)) == 88
    cache.release(prompt(512), 512)
    assert cache.held == 0


def test_without_a_prefix_cache_nothing_is_found() -> None:
    batch = engine(inter_token=10, prefix_cache=False, cache_tokens=1000)
    send(batch, sequence(100, 5), sequence(100, 5))
    assert batch.usage == pytest.approx(0.2)
    play(batch)
    assert (batch.counters.queries, batch.counters.hits, batch.counters.prompt_tokens) == (0, 0, 200)


# ------------------------------------------------------------------------------------------- real time


def test_the_engine_waits_and_a_cancelled_request_is_aborted() -> None:
    async def run() -> Batch:
        slow = Engine(Load(inter_token=1, slots=1))
        hopeless = asyncio.create_task(slow.work([sequence(10, 10**6), sequence(10, 10**6)]))
        await asyncio.sleep(0.01)
        assert len(slow.batch.running) == len(slow.batch.waiting) == 1
        assert "vllm:num_requests_running" in slow.metrics()
        queued = asyncio.create_task(slow.work([sequence(10, 3), sequence(10, 1)]))
        await asyncio.sleep(0)
        hopeless.cancel()
        await queued
        assert hopeless.cancelled()
        return slow.batch

    batch = asyncio.run(run())
    assert batch.counters.finished == {"abort": 2, "length": 2}
    assert not batch.running


# ------------------------------------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (["--slots", "0"], "give at least 1"),
        (["--slots", "many"], "invalid int"),
        (["--slots", "9000"], "give as much"),
        (["--prefill", "-1"], "give 0"),
        (["--inter-token", "nan"], "give 0"),
        (["--inter-token", "inf"], "give 0"),
        (["--like", "tpu"], "h100-8b"),
        (["--scheduling-policy", "lottery"], "fcfs or priority"),
        (["--max-model-len", "5000000"], "less of the second"),
        (["--cache-tokens", "100"], "give more of the first"),
        (["--fault-hang", "2"], "between 0 and 1"),
        (["--slot", "3"], "unrecognized"),
    ],
)
def test_bad_options_are_refused_in_one_line(arguments: list[str], advice: str) -> None:
    with pytest.raises(UsageError, match=advice) as refused:
        options.parse(arguments)
    assert len(str(refused.value).splitlines()) == 1


def test_options_go_before_what_a_preset_says() -> None:
    load = options.parse(["--like", "h100-70b-tp4", "--slots", "64", "--no-prefix-cache"]).load
    preset = PRESETS["h100-70b-tp4"]
    assert (load.slots, load.prefix_cache) == (64, False)
    assert (load.inter_token, load.prefill, load.cache_tokens) == (
        preset.inter_token,
        preset.prefill,
        preset.cache_tokens,
    )
    assert options.parse([]).load == Load()
    assert not any(one.instant for one in PRESETS.values())


def test_every_orderof_the_load_model_is_an_option() -> None:
    assert {*options.ABOUT, "prefix_cache"} == {field.name for field in fields(Load)}


def test_a_line_of_options() -> None:
    assert options.split("--like 'h100-8b' --plain") == ["--like", "h100-8b", "--plain"]
    for wrong in ("--port 1", "--ready-file x", "'", "--like x"):
        with pytest.raises(UsageError):
            options.split(wrong)


def test_presets_are_documented() -> None:
    text = (Path(__file__).parents[2] / "docs" / "simulation.md").read_text()
    for name, load in PRESETS.items():
        numbers = (load.inter_token, load.per_sequence, load.per_context)
        row = (
            f"| `{name}` | {numbers[0]} | {numbers[1]} | {numbers[2]} | {load.prefill:,} | {load.cache_tokens:,} |"
        )
        assert row in text
    for name in options.ABOUT:
        assert f"--{name.replace('_', '-')}" in text
    assert parameters.load("h100-8b") == PRESETS["h100-8b"]


# ------------------------------------------------------------------------------------------- HTTP


TEXT = "The board shows an X in the corner. I will check the answer of the server before I go on. " * 20


@dataclass(frozen=True)
class Answer:
    status: int
    text: str

    def json(self) -> Any:
        return json.loads(self.text)


class Client:
    """Calls the application as uvicorn does, without the network."""

    def __init__(self, load: Load | None = None, faults: Faults | None = None, *, plain: bool = False) -> None:
        self._app = app(load, faults, plain=plain)
        self._loop = asyncio.new_event_loop()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.close()

    def get(self, path: str) -> Answer:
        return self._loop.run_until_complete(self._call("GET", path, b""))

    def post(self, path: str, body: dict[str, Any]) -> Answer:
        return self._loop.run_until_complete(self._call("POST", path, json.dumps(body).encode()))

    async def _call(self, method: str, path: str, body: bytes) -> Answer:
        sent: list[Message] = []
        coming: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Message:
            if not coming:
                await asyncio.Event().wait()  # the client stays
            return coming.pop()

        async def send(message: Message) -> None:
            sent.append(message)

        scope = {"type": "http", "method": method, "path": path, "headers": [], "query_string": b""}
        await self._app(scope, receive, send)
        return Answer(sent[0]["status"], b"".join(message.get("body", b"") for message in sent).decode())


def asked(served: Client, prompt: Any = TEXT, **more: Any) -> dict[str, Any]:
    body = {"model": MODEL, "prompt": prompt, "max_tokens": 8, "seed": 1} | more
    answer = served.post("/v1/completions", body)
    assert answer.status == 200, answer.text
    return dict(answer.json())


def refusal(served: Client, **body: Any) -> str:
    answer = served.post("/v1/completions", {"prompt": TEXT} | body)
    assert answer.status == 400
    return str(answer.json()["error"]["message"])


def test_text_and_its_tokens_are_one_prompt() -> None:
    with Client() as served:
        ids = served.post("/tokenize", {"prompt": TEXT}).json()["tokens"]
        assert served.post("/detokenize", {"tokens": ids[1:]}).json() == {"prompt": TEXT}
        by_text, by_ids = asked(served, return_token_ids=True), asked(served, ids[1:], return_token_ids=True)
        assert by_text["choices"][0]["prompt_token_ids"] == ids
        assert by_text["choices"][0]["token_ids"] == by_ids["choices"][0]["token_ids"]
        assert by_text["usage"]["prompt_tokens"] == len(ids) == by_ids["usage"]["prompt_tokens"] + 1
        bare = asked(served, add_special_tokens=False)
        assert bare["usage"]["prompt_tokens"] == len(ids) - 1
        assert by_text["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}
        assert bare["usage"]["prompt_tokens_details"] == {"cached_tokens": (len(ids) - 2) // 16 * 16}


@pytest.mark.parametrize(
    "prompt", [[], [[]], [""], [300, "x"], ["x", [300]], [300, [301]], [-1], [10**12], [[10**6]]]
)
def test_prompts_that_are_none(prompt: Any) -> None:
    with Client() as served:
        assert "rompt" in refusal(served, prompt=prompt, add_special_tokens=False) or "Token id" in refusal(
            served, prompt=prompt
        )


def test_the_stop_string_may_stay() -> None:
    with Client() as served:
        whole = asked(served, max_tokens=50)["choices"][0]["text"]
        word = whole[5:9]
        cut = asked(served, max_tokens=50, stop=word)["choices"][0]["text"]
        kept = asked(served, max_tokens=50, stop=word, include_stop_str_in_output=True)["choices"][0]["text"]
        assert kept == cut + word == whole[: len(kept)]


def test_lengths() -> None:
    with Client(Load(max_model_len=100)) as served:
        assert served.get("/v1/models").json()["data"][0]["max_model_len"] == 100
        assert served.post("/tokenize", {"prompt": "x"}).json()["max_model_len"] == 100
        assert "maximum context length is 100 tokens" in refusal(served)
        assert "max_tokens must be at least 1, got 0" in refusal(served, prompt=[300] * 100)
        assert asked(served, [300] * 97, max_tokens=50)["usage"]["total_tokens"] <= 100


def test_priorities_need_the_policy() -> None:
    with Client(Load(scheduling_policy="fcfs")) as served:
        assert "Got priority 3" in refusal(served, priority=3)
        assert asked(served, priority=0)
    with Client() as served:
        assert asked(served, priority=3)


def test_a_plain_server_lacks_the_extras() -> None:
    with Client(plain=True) as served:
        for path in ("/tokenize", "/detokenize", "/metrics"):
            assert served.get(path).status == served.post(path, {}).status == 404
        assert "token ids" in refusal(served, prompt=[300, 301])
        assert "token ids" in refusal(served, prompt=[[300, 301]])
        assert "logprob_token_ids" in refusal(served, logprobs=1, logprob_token_ids=[300])
        answer = asked(served, logprobs=1, return_tokens_as_token_ids=True, return_token_ids=True, priority=9)
        assert answer["choices"][0]["token_ids"] is None
        assert not answer["choices"][0]["logprobs"]["tokens"][0].startswith("token_id:")
        assert answer["usage"]["prompt_tokens_details"] is None
        assert "max_model_len" not in served.get("/v1/models").json()["data"][0]


def test_a_truncated_answer() -> None:
    with Client(faults=Faults(truncate=1.0)) as served:
        answer = served.post("/v1/completions", {"prompt": TEXT, "seed": 1})
        assert answer.status == 200
        with pytest.raises(json.JSONDecodeError):
            answer.json()
        assert answer.text.startswith('{"id":"cmpl-')


def test_a_slow_answer_is_the_same_answer() -> None:
    with Client() as served:
        expected = asked(served)["choices"]
        served.post("/sim/faults", {"slow": 1.0})
        assert asked(served)["choices"] == expected


def test_metrics_of_a_load() -> None:
    with Client(Load(inter_token=1, slots=7)) as served:
        asked(served, n=3)
        asked(served, [[300] * 40, [301] * 40], max_tokens=1)
        lines = [line for line in served.get("/metrics").text.splitlines() if not line.startswith("#")]
    values = {line.partition("{")[0]: float(line.rpartition(" ")[2]) for line in lines}
    tokens = len(tokenizer.encode(TEXT)) + 1
    assert values["sim:slots"] == 7
    assert values["sim:slot_seconds_total"] > 0
    assert values["vllm:prompt_tokens_total"] == values["vllm:prefix_cache_queries_total"] == 3 * tokens + 80
    assert values["vllm:prefix_cache_hits_total"] == 2 * (tokens // 16 * 16)
    assert values["vllm:cache_config_info"] == 1
    finished = [line for line in lines if line.startswith("vllm:request_success_total")]
    assert len(finished) == len(REASONS)
    assert sum(float(line.rpartition(" ")[2]) for line in finished) == 5


def test_a_client_that_hangs_up_frees_its_places(tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    arguments = ["--ready-file", str(ready), "--inter-token", "5000", "--slots", "2"]
    process = subprocess.Popen([sys.executable, "-m", "simulation", *arguments])

    def wait(values: dict[str, float]) -> None:
        """Until the metrics say so."""
        deadline = time.monotonic() + 30
        while True:
            with urlopen(Request(f"http://127.0.0.1:{port}/metrics")) as response:
                lines = response.read().decode().splitlines()
            found = {
                name: float(line.rpartition(" ")[2]) for line in lines for name in values if line.startswith(name)
            }
            if found == values:
                return
            assert time.monotonic() < deadline, found
            time.sleep(0.02)

    try:
        deadline = time.monotonic() + 30
        while not ready.exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        port = int(json.loads(ready.read_text())["port"])
        body = json.dumps({"prompt": TEXT, "n": 3, "max_tokens": 50}).encode()
        running, waiting = "vllm:num_requests_running", "vllm:num_requests_waiting{"
        aborted = 'vllm:request_success_total{engine="0",finished_reason="abort"'
        with socket.create_connection(("127.0.0.1", port)) as raw:
            head = f"POST /v1/completions HTTP/1.1\r\nHost: sim\r\nContent-Length: {len(body)}\r\n\r\n"
            raw.sendall(head.encode() + body)
            wait({running: 2, waiting: 1, aborted: 0})
        wait({running: 0, waiting: 0, aborted: 3})
    finally:
        process.terminate()
        process.wait(10)
