"""What the server is started with, and what it refuses."""

import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.vllm_server import Server
from weavegen.errors import ModelError, Unfit
from weavegen.pool.client import ModelClient, Prompt
from weavegen.pool.tokens import Tokens

LENGTH = 32768
"""--max-model-len of scripts/vllm.sh."""


def sample(client: ModelClient, prompt: Prompt, max_tokens: int = 1) -> list[int]:
    """Token ids of one continuation."""
    sampled = client.sample(
        prompt, n=1, max_tokens=max_tokens, temperature=1.0, top_k=50, repetition_penalty=1.0, seed=1, stop=()
    )
    return sampled.continuations[0].token_ids or []


def test_it_runs_with_the_flags_that_the_documents_recommend(server: Server) -> None:
    (command,) = re.findall(
        r"^    vllm serve MODEL((?:.*\\\n)*.*)$", (ROOT / "docs" / "servers.md").read_text(), re.MULTILINE
    )
    flags = shlex.split(command.replace("\\\n", " "))
    assert len(flags) >= 6
    arguments = Path(f"/proc/{server.process.pid}/cmdline").read_text().rstrip("\0").split("\0")
    assert set(flags) <= set(arguments)
    values = [pair for pair in pairwise(flags) if pair[0].startswith("--") and not pair[1].startswith("--")]
    assert set(values) <= set(pairwise(arguments))


def test_the_only_model_is_taken_and_its_length_known(client: ModelClient) -> None:
    assert client.model == "tiny"
    assert client.length == LENGTH


def test_a_server_without_the_model_is_unfit(server: Server) -> None:
    with pytest.raises(Unfit, match="it has tiny"):
        sample(ModelClient(server.url, "EMPTY", "large"), "<s>")


def test_a_prompt_that_is_too_long_is_refused_for_good(client: ModelClient) -> None:
    prompts: list[Prompt] = [Tokens.of([5] * (LENGTH + 1)), "<s>" * (LENGTH + 1)]
    for prompt in prompts:
        with pytest.raises(ModelError, match=rf"(?s)400.*{LENGTH}"):
            sample(client, prompt)
        with pytest.raises(ModelError, match=rf"(?s)400.*{LENGTH}"):
            client.yes_no([prompt])


def test_the_context_bounds_what_is_sampled(client: ModelClient) -> None:
    """No error: fewer tokens."""
    assert len(sample(client, Tokens.of([5] * (LENGTH - 8)), max_tokens=100)) == 8


def test_bad_settings_are_refused_for_good(client: ModelClient) -> None:
    with pytest.raises(ModelError, match="temperature"):
        client.sample("<s>", n=1, max_tokens=1, temperature=-1.0, top_k=50, repetition_penalty=1.0, seed=1, stop=())
