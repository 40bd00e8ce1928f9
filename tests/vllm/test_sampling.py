"""Sampling: texts, their ends, seeds, token ids and logprobs."""

from itertools import pairwise
from typing import Any

import pytest

from tests.support.vllm_server import Forward, Server
from weavegen.errors import ModelError
from weavegen.pool.client import MAX_STOPS, ModelClient, Prompt
from weavegen.pool.tokens import Continuation, Sampled, Tokens, whole_tokens

PROMPT = """<s> [INST] #subagent main
#startblock type: observation
#index 2
# a lamp, a chessboard
#endblock
[/INST]
#startblock type: action
#index 3
def action_look(self):"""
LENGTH = 60
"""Number of tokens; more than any test samples."""


def sample(client: ModelClient, prompt: Prompt = PROMPT, **options: Any) -> Sampled:
    numbers: dict[str, Any] = {"n": 3, "max_tokens": LENGTH, "temperature": 0.9, "top_k": 50}
    numbers |= {"repetition_penalty": 1.02, "seed": 7, "stop": ()}
    return client.sample(prompt, **(numbers | options))


def texts(sampled: Sampled) -> list[str]:
    return [continuation.text for continuation in sampled.continuations]


def decoded(server: Server, continuation: Continuation) -> str:
    """The text of its tokens. A server omits an incomplete character at the end, because its rest may follow."""
    assert continuation.token_ids is not None
    return server.detokenize(continuation.token_ids).rstrip("\ufffd")


def test_number_and_length_of_texts(client: ModelClient) -> None:
    for n in (1, 5):
        sampled = sample(client, n=n)
        assert len(sampled.continuations) == n
        assert len(set(texts(sampled))) == n
        for continuation in sampled.continuations:
            assert continuation.finish_reason == "length"
            assert continuation.token_ids is not None
            assert len(continuation.token_ids) == LENGTH
    assert [len(one.token_ids or ()) for one in sample(client, n=2, max_tokens=1).continuations] == [1, 1]


def test_max_tokens_affects_only_the_end(client: ModelClient) -> None:
    for long, short in zip(*(sample(client, max_tokens=limit).continuations for limit in (40, 15)), strict=True):
        assert (long.token_ids or [])[:15] == short.token_ids


def test_a_stop_string_is_cut_but_its_tokens_are_returned(client: ModelClient, server: Server) -> None:
    (whole,) = sample(client, n=1).continuations
    stop = whole.text[50:55]
    (cut,) = sample(client, n=1, stop=["never-said", stop]).continuations
    assert cut.finish_reason == "stop"
    assert cut.text == whole.text[: whole.text.index(stop)]
    assert cut.token_ids == (whole.token_ids or [])[: len(cut.token_ids or ())]
    assert len(cut.token_ids or ()) == len(cut.logprobs or ())
    assert decoded(server, cut).startswith(cut.text + stop)


def test_stop_strings_beyond_the_servers_limit(client: ModelClient) -> None:
    (whole,) = sample(client, n=1).continuations
    stop = whole.text[30:35]
    (cut,) = sample(client, n=1, stop=[*(f"never-{number}" for number in range(MAX_STOPS)), stop]).continuations
    assert (cut.text, cut.finish_reason) == (whole.text[: whole.text.index(stop)], "stop")


def test_the_server_refuses_more_stop_strings(server: Server) -> None:
    """Otherwise the client would not need to hold any back."""
    words = [f"never-{number}" for number in range(MAX_STOPS + 1)]
    server.post("/v1/completions", prompt=PROMPT, max_tokens=1, stop=words[:-1])
    with pytest.raises(OSError, match="400"):
        server.post("/v1/completions", prompt=PROMPT, max_tokens=1, stop=words)


@pytest.mark.parametrize("as_ids", [False, True], ids=["text", "ids"])
def test_the_seed_determines_the_texts(client: ModelClient, as_ids: bool) -> None:
    prompt = client.encode(PROMPT) if as_ids else PROMPT
    first = sample(client, prompt)
    assert sample(client, prompt).continuations == first.continuations
    assert not set(texts(first)) & set(texts(sample(client, prompt, seed=107)))


def test_neighbouring_seeds_share_texts(client: ModelClient) -> None:
    """vLLM adds i to the seed for text i, so seeds of separate requests must differ by more than n."""
    assert texts(sample(client, n=3, seed=8))[:2] == texts(sample(client, n=3, seed=7))[1:]


def test_a_text_and_its_ids_are_the_same_prompt(client: ModelClient) -> None:
    """This model's tokenizer puts `<s>` before every text, like Llama's. It must not occur twice."""
    ids = client.encode(PROMPT)
    by_text, by_ids = sample(client), sample(client, ids)
    assert by_text.prompt_tokens == by_ids.prompt_tokens == ids.count
    assert texts(by_text) == texts(by_ids)
    assert texts(by_text) != texts(sample(client, Tokens.of([ids.ids[0], *ids.ids])))


def test_encode_adds_a_token_only_at_the_beginning_of_a_prompt(client: ModelClient, server: Server) -> None:
    text, start = client.encode("a lamp"), client.encode("<s>")
    assert server.detokenize(text.ids) == "a lamp"
    assert (start.count, client.encode("").count) == (1, 0)
    with_start = Tokens.of([*start.ids, *text.ids])
    assert client.encode("<s>a lamp") == client.encode("<s>a lamp", bos=True) == with_start
    assert client.encode("a lamp", bos=True) == with_start


def test_token_ids_are_those_of_the_text(client: ModelClient, server: Server) -> None:
    for continuation in sample(client).continuations:
        assert decoded(server, continuation) == continuation.text.rstrip("\ufffd")


@pytest.mark.parametrize("seed", range(5))
def test_tokens_of_a_text_without_its_stop_string(client: ModelClient, server: Server, seed: int) -> None:
    """The tokens with which the next prompt continues, wherever in a token the stop string begins."""
    (whole,) = sample(client, n=1, seed=seed).continuations
    found = 0
    stops = (whole.text[at : at + 4] for at in range(40, 70))
    for stop in [stop for stop in stops if "\ufffd" not in stop][:20]:  # the text of a part of a character
        (cut,) = sample(client, n=1, seed=seed, stop=[stop]).continuations
        ids = cut.token_ids or []
        if counted := whole_tokens(ids, cut.text, [stop], client.word):
            kept, over = counted
            assert (server.detokenize(ids[:kept]) + over).rstrip("\n") == cut.text.rstrip("\n")
            found += 1
    assert found > 15  # a text that ends inside a character may be missing


def test_logprobs_are_the_models_own(client: ModelClient, forward: Forward) -> None:
    """Equal to a plain forward pass with the same weights, without temperature, top k and penalty."""
    prompt = client.encode(PROMPT).ids
    continuations = sample(client, temperature=0.7, top_k=20, repetition_penalty=1.3).continuations
    expected = forward([[*prompt, *(continuation.token_ids or ())] for continuation in continuations])["chosen"]
    for continuation, logprobs in zip(continuations, expected, strict=True):
        assert continuation.logprobs == pytest.approx(logprobs[len(prompt) - 1 :], abs=1e-3)
        assert len({round(logprob, 3) for logprob in continuation.logprobs or ()}) > LENGTH // 2


def test_sampling_settings_reach_the_server(client: ModelClient) -> None:
    (greedy,) = sample(client, n=1, temperature=0.0).continuations
    assert greedy.token_ids == sample(client, n=1, temperature=0.0, seed=107).continuations[0].token_ids
    assert set(texts(sample(client, n=2, top_k=1))) == {greedy.text}
    (strict,) = sample(client, n=1, temperature=0.0, repetition_penalty=2.0).continuations
    assert strict.text != greedy.text
    assert all(one != other for one, other in pairwise(strict.token_ids or []))


def test_several_texts_need_a_temperature(client: ModelClient) -> None:
    """Required by vLLM, because at temperature 0 all texts would be equal."""
    with pytest.raises(ModelError, match="greedy"):
        sample(client, n=2, temperature=0.0)
