"""What the engine computes and samples, compared with a slow reference implementation."""

import dataclasses
import time
from pathlib import Path

import numpy as np
import pytest

from tests.support.nano_model import MAX_DIFFERENCE, Reference, make
from weavegen.errors import UsageError
from weavegen_nano.attention import PrefixCache, Prompt
from weavegen_nano.engine import Engine, Order, Sampling, Unloaded, draw, logprobs
from weavegen_nano.llama import Llama
from weavegen_nano.texts import Texts


def ids(seed: int, count: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.random.default_rng(seed).integers(2, 300, count)


def order(seed: int, count: int, **more: object) -> Order:
    how = Sampling(temperature=0.9, top_k=40, penalty=1.1)
    return dataclasses.replace(Order(prompt=ids(seed, count), n=3, max_tokens=20, sampling=how, seed=seed), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changed", [{}, {"tie_word_embeddings": True}, {"num_key_value_heads": 6}, {"num_key_value_heads": 1}]
)
def test_logprobs_equal_the_reference(tmp_path: Path, changed: dict[str, int]) -> None:
    folder = make(tmp_path / "m", seed=3, **changed)
    model, reference = Llama(folder), Reference(folder, seed=3)
    assert model.parameters == sum(array.size for array in reference.weights.values())
    prompt = ids(1, 40)
    told = logprobs(Prompt(prompt, model.shape).read(model))[0]
    assert np.abs(told - reference.logprobs(prompt.tolist())[-1]).max() < MAX_DIFFERENCE


def test_long_prompts_are_processed_in_pieces(folder: Path, reference: Reference) -> None:
    """Longer than one piece, and longer than the model's context: the caller must limit the length."""
    model, prompt = Llama(folder), ids(2, 300)
    told = logprobs(Prompt(prompt, model.shape).read(model))[0]
    assert np.abs(told - reference.logprobs(prompt.tolist())[-1]).max() < MAX_DIFFERENCE


def test_sampled_tokens_have_the_models_own_logprobs(engine: Engine, reference: Reference) -> None:
    """With any penalty and temperature; several requests at once, more than there are slots."""
    asked = [order(seed, 10 + 7 * seed, top_logprobs=2, logprob_ids=(5, 9)) for seed in range(5)]
    for one, over in [(one, engine.submit(one)) for one in asked]:
        for continuation in over.result(60).continuations:
            assert len(continuation.ids) == 20
            told = reference.logprobs([*one.prompt.tolist(), *continuation.ids])[len(one.prompt) - 1 :]
            for token, top, true in zip(continuation.ids, continuation.tops, told, strict=False):
                assert {token, 5, 9, *np.argsort(-true)[:2].tolist()} == top.keys()
                assert all(abs(true[number] - logprob) < MAX_DIFFERENCE for number, logprob in top.items())


def test_equal_seeds_give_equal_texts_whatever_else_is_served(engine: Engine) -> None:
    alone = engine.submit(order(1, 60)).result(60)
    together = [engine.submit(order(seed, 60)) for seed in (4, 1, 5, 1)]
    for number in (1, 3):
        again = together[number].result(60)
        assert [one.ids for one in again.continuations] == [one.ids for one in alone.continuations]
        assert again.cached == 48  # three blocks; the last tokens are always computed
    other = engine.submit(dataclasses.replace(order(1, 60), seed=2)).result(60)
    assert [one.ids for one in other.continuations] != [one.ids for one in alone.continuations]
    assert len({tuple(one.ids) for one in alone.continuations}) == 3


def test_a_continuation_does_not_depend_on_their_number(engine: Engine) -> None:
    one, many = engine.submit(order(3, 20, n=1)).result(60), engine.submit(order(3, 20, n=12)).result(60)
    assert many.continuations[0].ids == one.continuations[0].ids  # 12, which is more than there are slots


def test_cached_values_equal_computed_ones(folder: Path) -> None:
    model, cache = Llama(folder), PrefixCache(160)
    first, second = ids(1, 100), np.concatenate([ids(1, 100)[:70], ids(2, 40)])
    whole = Prompt(first, model.shape)
    assert cache.find(whole) == 0
    whole.read(model)
    cache.keep(whole.ids, whole.cached)
    part = Prompt(second, model.shape)
    assert cache.find(part) == 64
    assert np.abs(part.read(model) - Prompt(second, model.shape).read(model)).max() < MAX_DIFFERENCE
    cache.keep(part.ids, part.cached)
    for seed in (3, 4):  # the least recently used block is evicted
        other = Prompt(ids(seed, 64), model.shape)
        other.read(model)
        cache.keep(other.ids, other.cached)
    assert [cache.find(Prompt(prompt, model.shape)) for prompt in (first, second, ids(4, 65))] == [32, 32, 64]


def test_stops(folder: Path, engine: Engine, texts: Texts) -> None:
    """Greedy, so that the text is known. A stop string may begin anywhere in it, also across tokens."""
    greedy = Sampling(temperature=0.0)
    whole = engine.submit(order(1, 30, n=1, max_tokens=60, sampling=greedy)).result(60).continuations[0]
    assert whole.finish == "length"
    text = bytes(whole.text)
    assert text == b"".join(map(texts.spell, whole.ids))
    for start in range(0, len(text) - 5, 3):
        stop = text[start : start + 5]
        stops = (b"never there", stop, text[start + 1 : start + 6])
        asked = order(1, 30, n=1, max_tokens=60, sampling=greedy, stops=stops)
        found = engine.submit(asked).result(60).continuations[0]
        assert (bytes(found.text), found.finish, found.stop) == (text[: text.index(stop)], "stop", stop)
        assert found.ids == whole.ids[: len(found.ids)]
        assert len(b"".join(map(texts.spell, found.ids[:-1]))) < text.index(stop) + 5
    last = whole.ids[20]
    ending = order(1, 30, n=1, max_tokens=60, sampling=greedy, end_token=last)
    ended = engine.submit(ending).result(60).continuations[0]
    assert (ended.ids, ended.finish, ended.stop) == (whole.ids[: whole.ids.index(last) + 1], "stop", None)


def test_a_cancelled_request_takes_no_more_steps(engine: Engine) -> None:
    endless = engine.submit(order(1, 20, max_tokens=10**9))
    waits = engine.submit(order(2, 20, n=8, max_tokens=3))
    assert endless.cancel()
    waits.result(60)
    assert engine.counters.finished == {"abort": 3, "length": 8}


def test_what_was_written_is_in_the_prefix_cache(engine: Engine) -> None:
    first = engine.submit(order(1, 60)).result(60)
    for written in first.continuations:
        prompt = np.concatenate([ids(1, 60), np.array(written.ids), ids(9, 10)])
        again = engine.submit(Order(prompt=prompt, n=1, max_tokens=1, sampling=Sampling(), seed=1)).result(60)
        assert again.cached == 64  # 60 tokens of the prompt and 19 of the text are 4 whole blocks
        cold = Prompt(prompt, engine.model.shape)
        told = logprobs(cold.read(engine.model))[0]
        [[token]] = [one.ids for one in again.continuations]
        assert abs(again.continuations[0].tops[0][token] - told[token]) < MAX_DIFFERENCE


def test_a_full_prefix_cache_is_no_usage(engine: Engine) -> None:
    """The pool sends fewer requests to a server whose keys and values have no room, and a full cache makes room."""
    for seed in range(30):
        engine.submit(order(seed, 100, max_tokens=1)).result(60)
    assert engine.usage == 0
    endless = engine.submit(order(1, 100, max_tokens=10**9))
    while not engine.running:
        time.sleep(0.01)
    assert 0 < engine.usage < 1
    assert endless.cancel()


def test_a_request_that_is_too_large_fails_alone(engine: Engine) -> None:
    with pytest.raises(MemoryError):
        engine.submit(order(1, 20, n=10**10)).result(60)
    assert len(engine.submit(order(1, 20)).result(60).continuations) == 3


def test_a_prompt_that_fails_fails_alone(engine: Engine) -> None:
    endless = engine.submit(order(1, 20, max_tokens=10**9))
    while not engine.running:
        time.sleep(0.01)
    with pytest.raises(IndexError):
        engine.submit(order(2, 20, prompt=np.array([10**6]))).result(60)
    engine.submit(order(3, 20, max_tokens=1)).result(60)
    assert endless.cancel(), "it is still being sampled"


def test_every_seed_is_served(engine: Engine) -> None:
    results = [engine.submit(dataclasses.replace(order(1, 20), seed=seed)).result(60) for seed in (-1, 2**64 - 1, -2)]
    one, same, other = (result.continuations[0].ids for result in results)
    assert one == same != other


def test_orders_of_an_engine_that_is_closed_end(folder: Path, texts: Texts) -> None:
    engine = Engine(Llama(folder), texts, slots=4, cache_tokens=2048)
    running = engine.submit(order(1, 20, max_tokens=10**9))
    while not engine.running:
        time.sleep(0.01)
    waiting = engine.submit(order(2, 20, max_tokens=10**9))
    engine.close()
    for future in (running, waiting, engine.submit(order(3, 20))):
        with pytest.raises(Unloaded):
            future.result(60)


# ------------------------------------------------------------------------------------------- sampling


def shares(
    logits: list[float], how: Sampling, seen: tuple[int, ...] = ()
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """The share of each token, over evenly spaced random numbers."""
    count = 10_000
    rows = np.repeat(np.array([logits], np.float32), count, axis=0)
    was = np.zeros(rows.shape, bool)
    was[:, seen] = True
    tokens = draw(rows, was, how, (np.arange(count) + 0.5) / count)
    return np.bincount(tokens, minlength=len(logits)) / count


def test_tokens_are_drawn_by_their_probability() -> None:
    odds = np.array([0.5, 0.2, 0.15, 0.1, 0.05])
    logits = np.log(odds).tolist()
    assert shares(logits, Sampling()) == pytest.approx(odds, abs=1e-3)
    flat = odds**0.5 / (odds**0.5).sum()
    assert shares(logits, Sampling(temperature=2.0)) == pytest.approx(flat, abs=1e-3)
    assert shares(logits, Sampling(top_k=2)) == pytest.approx([0.5 / 0.7, 0.2 / 0.7, 0, 0, 0], abs=1e-3)
    assert shares(logits, Sampling(top_p=0.6)) == pytest.approx([0.5 / 0.7, 0.2 / 0.7, 0, 0, 0], abs=1e-3)
    assert shares(logits, Sampling(top_p=0.01)).tolist() == [1, 0, 0, 0, 0]
    assert shares(logits, Sampling(temperature=0.0)).tolist() == [1, 0, 0, 0, 0]


def test_the_penalty_makes_earlier_tokens_less_likely() -> None:
    logits = [2.0, 1.0, -1.0]
    kept = shares(logits, Sampling(penalty=2.0), seen=(0, 2))
    odds = np.exp([1.0, 1.0, -2.0])
    assert kept == pytest.approx(odds / odds.sum(), abs=1e-3)


# ------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda folder: (folder / "config.json").unlink(), "No such file"),
        (lambda folder: (folder / "config.json").write_text("{"), "Expecting property name"),
        (lambda folder: (folder / "config.json").write_text("[]"), "not the configuration of a Llama"),
        (lambda folder: (folder / "config.json").write_text('{"model_type": "gpt2"}'), "serve it with vLLM"),
        (lambda folder: (folder / "config.json").write_text('{"model_type": "llama"}'), "num_attention_heads"),
        (lambda folder: (folder / "model.safetensors").unlink(), "can't be read"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"\x00" * 99), "can't be read"),
        (lambda folder: make(folder, num_hidden_layers=2) and _layers(folder, 3), "lacks 'model.layers.2"),
    ],
)
def test_an_invalid_model_is_refused(tmp_path: Path, spoil: object, told: str) -> None:
    folder = make(tmp_path / "m")
    spoil(folder)  # type: ignore[operator]
    with pytest.raises(UsageError, match=told.replace(".", r"\.")) as error:
        Llama(folder)
    assert "\n" not in str(error.value)


def _layers(folder: Path, count: int) -> None:
    config = folder / "config.json"
    config.write_text(config.read_text().replace('"num_hidden_layers": 2', f'"num_hidden_layers": {count}'))
