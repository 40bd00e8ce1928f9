"""The simulation's load model and its options: the numbers in docs/simulation.md on which benchmarks rely."""

import random
from dataclasses import fields
from typing import Any

import pytest

from simulation import options, parameters, tokenizer
from simulation.batch import Batch, Sequence
from simulation.cache import Prompt
from simulation.parameters import PRESETS, Load
from tests.support import ROOT
from weavegen.errors import UsageError


def prompt(tokens: int, first: int = 0) -> Prompt:
    """Tokens first, first+1, ...: two prompts with the same first token have a common prefix."""
    return Prompt(tokenizer.pack(range(first, first + tokens)))


def sequence(tokens: int, generate: int, *, first: int = 0, priority: int = 0) -> Sequence:
    output = tokenizer.pack(range(500_000, 500_000 + generate))
    return Sequence(prompt(tokens, first), output, "length", priority)


def engine(**numbers: Any) -> Batch:
    return Batch(Load(**({"max_model_len": 1000, "cache_tokens": 1_000_000} | numbers)))


def send(batch: Batch, *sequences: Sequence, now: float = 0.0) -> None:
    batch.advance(now)
    for sequence_to_add in sequences:
        batch.add(sequence_to_add)
    batch.advance(now)


def play(batch: Batch) -> dict[Sequence, float]:
    """Run until nothing is left to do. Returns when each sequence ended."""
    ended: dict[Sequence, float] = {}
    while (now := batch.next_event()) is not None:
        ended |= dict.fromkeys(batch.advance(now), now)
    assert not batch.running
    assert not batch.waiting
    assert batch.usage == 0
    return ended


@pytest.mark.parametrize("together", [1, 4])
def test_the_time_of_a_step_depends_on_the_batch(together: int) -> None:
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


def test_prompts_slow_down_sequences_that_decode() -> None:
    batch = engine(inter_token=10, prefill=10_000, step_tokens=300, slots=300)
    old, new = sequence(10, 100), sequence(900, 50, first=5000)
    send(batch, old)
    send(batch, new, now=0.3055)
    ended = play(batch)
    assert ended[old] == pytest.approx(100 * 0.010 + (10 + 900) / 10_000)
    # The second sequence joins at the next step boundary. The first ended a step at 11 ms, then every 10 ms. 299 +
    # 299 + 299 + 3 tokens: four steps.
    assert ended[new] == pytest.approx(0.311 + 4 * 0.010 + 900 / 10_000 + 49 * 0.010)


def test_zero_times_take_no_time() -> None:
    batch = engine(slots=2)
    sequences = [sequence(10, 40, first=100 * number) for number in range(9)]
    send(batch, now=7.0)
    for sequence_to_add in sequences:
        batch.add(sequence_to_add)
    assert batch.advance(7.0) == sequences
    assert batch.slot_seconds == 0


def test_lower_priority_values_run_first_then_in_order_of_arrival() -> None:
    batch = engine(inter_token=10, slots=1)
    first, late, later, urgent = (sequence(5, 3, priority=priority) for priority in (0, 5, 5, -1))
    send(batch, first)
    send(batch, late, later, urgent, now=0.001)
    assert len(batch.waiting) == 3
    assert list(play(batch)) == [first, urgent, late, later]


def test_without_priorities_the_order_is_by_arrival() -> None:
    batch = engine(inter_token=10, slots=1, scheduling_policy="fcfs")
    sequences = [sequence(5, 3, priority=priority) for priority in (0, 5, 5, -1)]
    send(batch, *sequences)
    assert list(play(batch)) == sequences


def test_a_sequence_that_does_not_fit_waits_and_is_not_overtaken() -> None:
    batch = engine(inter_token=10, cache_tokens=200, max_model_len=200)
    first, large, small = sequence(100, 20), sequence(150, 20, first=5000), sequence(10, 20, first=9000)
    send(batch, first, large, small)
    assert set(batch.running) == {first}
    assert batch.usage == pytest.approx(0.5)
    assert list(play(batch)) == [first, large, small]


def test_sequences_of_one_request_share_the_memory_and_work_of_their_prompt() -> None:
    batch = engine(inter_token=10, prefill=1000, cache_tokens=1000)
    shared = prompt(330)
    siblings = [Sequence(shared, tokenizer.pack(range(9)), "stop") for _ in range(4)]
    send(batch, *siblings)
    assert batch.usage == pytest.approx((320 + 4 * 10) / 1000)
    assert [sibling.cached for sibling in siblings] == [0, 320, 320, 320]
    assert play(batch)[siblings[0]] == pytest.approx((330 + 3 * 10) / 1000 + 9 * 0.010)
    assert (batch.counters.queries, batch.counters.hits) == (4 * 330, 3 * 320)


def test_slot_seconds_are_exact_between_any_two_moments() -> None:
    batch = engine(inter_token=10, slots=2)
    send(batch, *(sequence(5, 100, first=100 * number) for number in range(3)), now=5.0)
    for now, expected in ((5.0, 0.0), (5.123, 0.246), (6.0, 2.0), (6.5, 2.5), (7.0, 3.0), (9.0, 3.0)):
        batch.advance(now)
        batch.count_slots(now)
        assert batch.slot_seconds == pytest.approx(expected)


def test_prefix_hits_are_counted_as_in_vllm() -> None:
    """The requests of docs/simulation.md. vLLM's numbers differ only by the size of its blocks."""
    chance = random.Random(0)
    ids = [chance.randrange(9000) for _ in range(1000)]
    new = [chance.randrange(9000, 10_000) for _ in range(300)]
    output = [chance.randrange(9000) for _ in range(200)]
    batch = engine(inter_token=10, max_model_len=2000)

    def counted(*prompts: list[int], generate: int = 1, n: int = 1) -> tuple[int, int]:
        before = batch.counters.queries, batch.counters.hits
        for ids in prompts:
            shared, text = Prompt(tokenizer.pack(ids)), tokenizer.pack(output[:generate])
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


def test_options_override_the_preset() -> None:
    load = options.parse(["--like", "h100-70b-tp4", "--slots", "64", "--no-prefix-cache"]).load
    preset = PRESETS["h100-70b-tp4"]
    assert (load.slots, load.prefix_cache) == (64, False)
    assert (load.inter_token, load.prefill, load.cache_tokens) == (
        preset.inter_token,
        preset.prefill,
        preset.cache_tokens,
    )
    assert options.parse([]).load == Load()
    assert not any(preset.instant for preset in PRESETS.values())


def test_every_number_of_the_load_model_is_an_option() -> None:
    assert {*options.ABOUT, "prefix_cache"} == {field.name for field in fields(Load)}


def test_parsing_a_line_of_options() -> None:
    assert options.split("--like 'h100-8b' --plain") == ["--like", "h100-8b", "--plain"]
    for wrong in ("--port 1", "--ready-file x", "'", "--like x"):
        with pytest.raises(UsageError):
            options.split(wrong)


def test_presets_are_documented() -> None:
    text = (ROOT / "docs" / "simulation.md").read_text()
    for name, load in PRESETS.items():
        numbers = (load.inter_token, load.per_sequence, load.per_context)
        row = f"| `{name}` | {numbers[0]} | {numbers[1]} | {numbers[2]} | {load.prefill:,} | {load.cache_tokens:,} |"
        assert row in text
    for name in options.ABOUT:
        assert f"--{name.replace('_', '-')}" in text
    assert parameters.load("h100-8b") == PRESETS["h100-8b"]
