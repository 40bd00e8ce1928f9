"""`weavegen nano serve` as users have it: a process, and the client that workers use."""

import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import msgspec
import numpy as np
import pytest

from tests.support.nano_model import MAX_DIFFERENCE, Reference
from tests.support.nano_server import serving
from weavegen.errors import ModelError
from weavegen.pool import metrics, yes_no
from weavegen.pool.client import ModelClient
from weavegen.pool.http import Http
from weavegen.pool.tokens import Sampled

PROMPT = "#startblock type: action\ndef move(cell):\n"


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    with serving(folder) as url:
        yield url


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[ModelClient]:
    client = ModelClient(url, "EMPTY", None, timeout=60)
    yield client
    client.close()


def sample(client: ModelClient, text: str, seed: int, n: int = 4, **more: Any) -> Sampled:
    options: dict[str, Any] = {"max_tokens": 12, "temperature": 0.9, "top_k": 50, "repetition_penalty": 1.0}
    return client.sample(client.encode(text, bos=True), n=n, seed=seed, stop=(), **(options | more))


def test_the_client_recognises_the_server(client: ModelClient) -> None:
    assert (client.model, bool(client.tokenizer)) == ("tiny", True)
    ids = client.encode(PROMPT, bos=True).ids
    assert ids[0] == 0
    assert client.decode(ids) == f"<s>{PROMPT}"


def test_continuations_are_the_models(client: ModelClient, reference: Reference) -> None:
    prompt = client.encode(PROMPT, bos=True)
    sampled = sample(client, PROMPT, 1)
    assert sampled.prompt_tokens == len(prompt.ids)
    assert len({one.text for one in sampled.continuations}) == 4
    for one in sampled.continuations:
        assert one.token_ids is not None
        assert one.logprobs is not None
        assert one.text == re.sub("</?s>", "", client.decode(one.token_ids))
        true = reference.logprobs([*prompt.ids, *one.token_ids])[len(prompt.ids) - 1 :]
        chosen = [told[token] for told, token in zip(true, one.token_ids, strict=False)]
        assert np.abs(np.array(one.logprobs) - chosen).max() < MAX_DIFFERENCE


def test_yes_and_no_are_the_models(client: ModelClient, reference: Reference) -> None:
    questions = [f"{PROMPT}Is it {word}?" for word in ("so", "one", "cell", "not")]
    prompts = [client.encode(question, bos=True) for question in questions]
    for prompt, answer in zip(prompts, client.yes_no(prompts), strict=True):
        odds = np.exp(reference.logprobs(list(prompt.ids))[-1])
        sides = {ids[0]: yes_no.side(text) for text in yes_no.variants() if len(ids := client.encode(text).ids) == 1}
        for side, mass in ((True, answer.yes), (False, answer.no)):
            assert mass == pytest.approx(sum(odds[token] for token, meant in sides.items() if meant is side), abs=1e-5)


def test_concurrent_requests_get_the_same_as_single_ones(client: ModelClient) -> None:
    def texts(seed: int) -> list[str]:
        return [one.text for one in sample(client, PROMPT * (1 + seed % 5), seed).continuations]

    alone = [texts(seed) for seed in range(24)]
    with ThreadPoolExecutor(24) as pool:
        assert list(pool.map(texts, range(24))) == alone


def test_the_seed_minus_one_is_another_each_time(client: ModelClient) -> None:
    assert sample(client, PROMPT, -1) != sample(client, PROMPT, -1)
    assert sample(client, PROMPT, -2) == sample(client, PROMPT, -2)


def test_a_prompt_longer_than_the_window_is_served(client: ModelClient) -> None:
    sampled = sample(client, PROMPT * 400, 1)
    assert sampled.prompt_tokens is not None
    assert sampled.prompt_tokens <= 256
    assert {one.finish_reason for one in sampled.continuations} <= {"length", "stop"}


def test_metrics_of_the_server(client: ModelClient, url: str) -> None:
    root = url.removesuffix("/v1")
    before = metrics.read(root, Http("EMPTY", 10))
    sample(client, "def move(cell):" * 6, 1)
    again = sample(client, "def move(cell):" * 6, 2)
    after = metrics.read(root, Http("EMPTY", 10))
    assert again.cached_tokens
    assert (after.running, after.waiting) == (0, 0)
    assert after.generated - before.generated == 2 * 4 * 12
    assert urlopen(f"{root}/health", timeout=10).status == 200


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"prompt": ""}, "must be provided"),
        ({"prompt": [[1, 10**6]]}, "out of vocabulary"),
        ({"model": "other"}, "does not exist"),
        ({"n": 0}, "n must be at least 1"),
        ({"stop": list("abcde")}, "at most 4 items"),
        ({"logprobs": 1, "logprob_token_ids": [10**6]}, "out-of-vocab"),
        ({"prompt": [1] * 131_073}, "maximum context length"),
        ({"n": 257}, "n must be at most 256"),
    ],
)
def test_bad_requests_are_refused(url: str, wrong: dict[str, Any], told: str) -> None:
    http = Http("EMPTY", 10)
    with pytest.raises(ModelError, match=told):
        http.post(f"{url}/completions", {"prompt": "x", "max_tokens": 1} | wrong, msgspec.Raw)
    http.post(f"{url}/completions", {"prompt": "x", "max_tokens": 1}, msgspec.Raw)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["/none"], "give a folder with a model"),
        (["--slots", "0"], "argument --slots: '0': give a whole number of at least 1"),
        (["--port", "http"], "argument --port: invalid int value"),
        (["--prot"], "unrecognized arguments: --prot (see `weavegen nano serve --help`)"),
    ],
)
def test_bad_arguments_are_refused_in_one_line(arguments: list[str], told: str) -> None:
    command = [sys.executable, "-m", "weavegen.cli", "nano", "serve", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("weavegen: ")
    assert done.stderr.count("\n") == 1
    assert told in done.stderr
