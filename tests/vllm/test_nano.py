"""nano and a real vLLM with the same weights."""

import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support import ROOT
from tests.support.nano_server import serving
from tests.support.vllm_server import Server, StartServer
from weavegen.pool.client import ModelClient
from weavegen.pool.http import Http
from weavegen_nano import WEIGHTS
from weavegen_nano.llama import read_shape

pytestmark = pytest.mark.timeout(900)  # requests to a server that shares two cores with another server

PROMPTS = 50
CLOSE = 1e-3


@pytest.fixture(scope="module", params=["random", "weavegen-nano"])
def weights(request: pytest.FixtureRequest, model: Path) -> Path:
    """The folder with random weights, and the folder with weavegen's own model."""
    return model if request.param == "random" else WEIGHTS


@pytest.fixture(scope="module")
def vllm(weights: Path, model: Path, start_server: StartServer, request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a real vLLM with these weights."""
    if weights == model:
        shared: Server = request.getfixturevalue("server")
        yield shared.url
        return
    own = start_server(weights, "--max-model-len", str(read_shape(weights / "config.json").length))
    yield own.url
    own.kill()


@pytest.fixture(scope="module")
def nano(weights: Path) -> Iterator[str]:
    with serving(weights) as url:
        yield url


@pytest.fixture(scope="module")
def client(vllm: str) -> Iterator[ModelClient]:
    client = ModelClient(vllm, "EMPTY", None, timeout=120)
    yield client
    client.close()


@pytest.fixture(scope="module")
def prompts(client: ModelClient) -> list[list[int]]:
    """Pieces of a document, of 5 to 600 tokens."""
    ids = client.encode((ROOT / "ARCHITECTURE.md").read_text()).ids
    chance = random.Random(1)
    starts = [(chance.randrange(len(ids) - 600), chance.randint(5, 600)) for _ in range(PROMPTS)]
    return [list(ids[start : start + count]) for start, count in starts]


def ask(url: str, model: str, prompt: list[int], **more: Any) -> tuple[list[int], list[dict[str, float]]]:
    """Tokens of a greedy continuation, and for each token the reported logprobs by id."""
    body = {"model": model, "prompt": prompt, "temperature": 0.0, "return_tokens_as_token_ids": True} | more
    answer = msgspec.json.decode(Http("EMPTY", 120).post(f"{url}/completions", body, msgspec.Raw))
    told = answer["choices"][0]["logprobs"]
    return [int(name.removeprefix("token_id:")) for name in told["tokens"]], told["top_logprobs"]


def test_the_next_tokens_logprobs_are_equal(vllm: str, nano: str, weights: Path, prompts: list[list[int]]) -> None:
    differences = []
    for number, prompt in enumerate(prompts):
        ids = [(number * 97 + at * 16) % 2048 for at in range(128)]
        wanted = {"max_tokens": 1, "logprobs": 1, "logprob_token_ids": ids}
        [vllms] = ask(vllm, "tiny", prompt, **wanted)[1]
        [ours] = ask(nano, weights.name, prompt, **wanted)[1]
        assert {f"token_id:{token}" for token in ids} <= vllms.keys() & ours.keys()
        differences += [abs(vllms[name] - ours[name]) for name in vllms.keys() & ours.keys()]
    sys.stdout.write(f"largest of {len(differences)} differences: {max(differences):.1e}\n")  # shown with -s
    assert max(differences) < CLOSE


def test_continuations_are_equal(vllm: str, nano: str, weights: Path, prompts: list[list[int]]) -> None:
    """Greedy continuations, except where two tokens are equally likely."""
    equal = 0
    for prompt in prompts:
        vllms, told = ask(vllm, "tiny", prompt, max_tokens=12, logprobs=1)
        ours, told_by_us = ask(nano, weights.name, prompt, max_tokens=12, logprobs=1)
        equal += vllms == ours
        for token, same, top, our_top in zip(vllms, ours, told, told_by_us, strict=False):
            if token != same:
                break
            assert abs(top[f"token_id:{token}"] - our_top[f"token_id:{token}"]) < CLOSE
    assert equal >= 0.95 * PROMPTS


def test_text_and_tokens_are_equal(client: ModelClient, nano: str, weights: Path) -> None:
    other = ModelClient(nano, "EMPTY", None)
    assert other.model == weights.name
    for text in ((ROOT / "ARCHITECTURE.md").read_text(), "Zwölf Boxkämpfer 🥊 </s> <s>\n\t", " "):
        assert other.encode(text, bos=True) == client.encode(text, bos=True)
        ids = client.encode(text).ids
        assert other.decode(ids) == client.decode(ids)
    other.close()
