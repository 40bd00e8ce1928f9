"""An adapter that a real vLLM loads while it is running."""

from pathlib import Path

import pytest

from tests.support.nano_model import make_adapter
from tests.support.nano_server import likelihood, serving
from tests.support.vllm_server import Server
from weavegen.errors import UsageError
from weavegen.pool import adapters
from weavegen.pool.http import Http
from weavegen.pool.served import list_models

CLOSE = 1e-3
PROMPTS = ("def move(cell):\n", "Once upon a time", "#startblock type: action\n", "import os\n\nclass ")


@pytest.fixture(scope="module")
def url(second: Server) -> str:
    return second.url


def test_an_adapter_is_loaded_gives_the_same_as_in_nano_and_is_unloaded(url: str, model: Path, tmp_path: Path) -> None:
    adapter = make_adapter(tmp_path / "round-1", model)
    own = [likelihood(url, None, prompt) for prompt in PROMPTS]
    adapters.load({url: "EMPTY"}, "round-1", adapter)
    adapters.load({url: "EMPTY"}, "round-1", adapter)  # already loaded: nothing happens
    models = list_models(url, Http("EMPTY", 10.0))
    assert [(one.id, one.parent) for one in models] == [("tiny", None), ("round-1", "tiny")]
    with serving(model) as nano:
        adapters.load({nano: "EMPTY"}, "round-1", adapter)
        for prompt, (tokens, _) in zip(PROMPTS, own, strict=True):
            changed, logprobs = likelihood(url, "round-1", prompt)
            ours, told_by_us = likelihood(nano, "round-1", prompt)
            assert changed != tokens, "Does the adapter change the output?"
            assert changed == ours
            assert logprobs == pytest.approx(told_by_us, abs=CLOSE)
    for prompt, (tokens, told) in zip(PROMPTS, own, strict=True):
        again, logprobs = likelihood(url, None, prompt)
        assert (again, logprobs) == (tokens, pytest.approx(told, abs=CLOSE)), "Is the model itself unchanged?"
    assert adapters.unload({url: "EMPTY"}, "round-1") == 1
    assert adapters.unload({url: "EMPTY"}, "round-1") == 0
    assert len(list_models(url, Http("EMPTY", 10.0))) == 1


def test_an_adapter_that_can_not_be_loaded_gives_a_one_line_error(url: str, model: Path, tmp_path: Path) -> None:
    wide = make_adapter(tmp_path / "wide", model, rank=16)
    for folder, why in {tmp_path / "missing": "No adapter found", wide: "rank"}.items():
        with pytest.raises(UsageError, match=why) as caught:
            adapters.load({url: "EMPTY"}, "wrong", folder)
        assert "\n" not in str(caught.value)


def test_a_server_without_lora_says_what_is_missing(server: Server, model: Path, tmp_path: Path) -> None:
    adapter = make_adapter(tmp_path / "round-1", model)
    with pytest.raises(UsageError, match="--enable-lora"):
        adapters.load({server.url: "EMPTY"}, "round-1", adapter)
