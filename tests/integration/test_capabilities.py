"""weavegen asks model servers what they can do: the simulation, nano, and servers with fewer features."""

from pathlib import Path
from typing import Any

import pytest

from simulation.process import Process
from tests.support.nano_server import serving
from tests.support.raw_server import RawServer, answer, completion
from weavegen.errors import ModelError
from weavegen.pool import capabilities
from weavegen.pool.capabilities import FEATURES, Capabilities
from weavegen.pool.chat import ChatClient
from weavegen.pool.client import ModelClient
from weavegen.pool.metering import metered
from weavegen.pool.survey import survey
from weavegen.pool.tokens import Tokens
from weavegen.pool.yes_no import from_top
from weavegen.trace.blocks import BlockType
from weavegen_nano import WEIGHTS

SAMPLING = {"n": 1, "max_tokens": 8, "temperature": 1.0, "top_k": 20, "repetition_penalty": 1.02, "seed": 1}


def names(has: Capabilities) -> set[str]:
    """The features that the server lacks."""
    return {line.partition(":")[0] for line in capabilities.lacks(has)}


def test_the_simulation_behaves_as_vllm_without_adapters(tmp_path: Path) -> None:
    server = Process(tmp_path, "whole", "--port", "0")
    try:
        has = capabilities.probe(server.url, "EMPTY")
    finally:
        server.kill()
    assert (has.model, has.length, has.logprobs) == ("weavegen-sim", 131_072, 20)
    assert names(has) == {"adapters"}


def test_a_server_without_vllms_extras(tmp_path: Path) -> None:
    server = Process(tmp_path, "plain", "--port", "0", "--plain")
    try:
        has = capabilities.probe(server.url, "EMPTY")
    finally:
        server.kill()
    assert has.completions
    assert has.logprobs == 20
    assert (has.prompt_ids, has.template, has.exact, has.metrics) == (False, False, False, False)
    assert {"chat template", "exact prompts", "exact scores", "load in pool and top"} <= names(has)
    assert not {feature.name for feature in FEATURES if feature.agents} & names(has)


def test_nano_lacks_nothing() -> None:
    with serving(WEIGHTS) as url:
        has = capabilities.probe(url, "EMPTY")
    assert has.adapters
    assert capabilities.lacks(has) == []


def refusing(*unknown: str) -> RawServer:
    """A server that refuses parameters that it does not know, as OpenAI's API does."""

    def reply(request: dict[str, object]) -> bytes:
        for name in unknown:
            if name in request:
                error = {"error": {"message": f"Unrecognized request argument supplied: {name}"}}
                return answer(error, "400 Bad Request")
        return answer(completion(request))

    return RawServer(reply)


def test_parameters_that_a_server_refuses_are_left_out() -> None:
    refused = ("top_k", "repetition_penalty", "return_tokens_as_token_ids", "priority")
    with refusing(*refused) as server:
        client = ModelClient(server.url, "EMPTY", None)
        for _ in range(2):
            [one] = client.sample("Hello", stop=(), priority=3, **SAMPLING).continuations  # type: ignore[arg-type]
        client.close()
        assert one.text == "Yes"
        assert server.requests == len(refused) + 2
        assert not capabilities.probe(server.url, "EMPTY").sampling


@pytest.mark.parametrize("message", ["top_k must be at least 1, got -5", "the prompt is too long"])
def test_a_wrong_value_is_no_unknown_parameter(message: str) -> None:
    with RawServer(lambda _: answer({"error": {"message": message}}, "400 Bad Request")) as server:
        client = ModelClient(server.url, "EMPTY", None)
        with pytest.raises(ModelError, match=message):
            client.sample("Hello", stop=(), **SAMPLING)  # type: ignore[arg-type]
        client.close()
        assert server.requests == 1


def test_a_server_that_does_not_answer_says_why() -> None:
    [reason] = capabilities.probe_all({"http://127.0.0.1:9/v1": "EMPTY"}).values()
    assert isinstance(reason, str)
    assert "no connection" in reason


def test_conversations_prefer_the_chat_api_of_a_server_that_tells_no_template() -> None:
    """Such as transformers' own server and llama.cpp's: they have both, and no /tokenize that takes messages."""

    def reply(request: dict[str, object]) -> bytes | None:
        return None if "prompt" in request else answer({"error": "no messages"}, "500 Internal Server Error")

    with RawServer(reply) as server:
        server.paths = ("/v1/completions", "/v1/chat/completions")
        assert ModelClient(server.url, "EMPTY", None).chats_better
        server.paths = ("/v1/completions",)
        assert not ModelClient(server.url, "EMPTY", None).chats_better


def test_a_chat_api_that_refuses_the_limit_of_tokens() -> None:
    """Such as that of reasoning models, which takes another parameter."""

    def reply(request: dict[str, object]) -> bytes:
        if "max_tokens" in request:
            return answer({"error": {"message": "Unsupported parameter: 'max_tokens'"}}, "400 Bad Request")
        return answer({"choices": [{"index": 0, "message": {"content": "Hello"}}]})

    with RawServer(reply) as server:
        server.paths = ("/v1/chat/completions",)
        has = capabilities.probe(server.url, "EMPTY")
    assert (has.chat, has.completions) == (True, False)


@pytest.mark.parametrize("status", ["401 Unauthorized", "403 Forbidden", "501 Not Implemented", "302 Found"])
def test_a_gateway_that_guards_all_but_the_api(status: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with RawServer() as server:
        right = server.answer
        closed = answer({"error": "no"}, status)
        monkeypatch.setattr(server, "answer", lambda at, body: right(at, body) if at.startswith("/v1/") else closed)
        assert not capabilities.probe(server.url, "EMPTY").prompt_ids
        assert not ModelClient(server.url, "EMPTY", None).tokenizer
        [row] = survey({server.url: "EMPTY"}, 0.1)
        assert (row.state, row.model) == ("up", "raw")


@pytest.mark.parametrize("body", [{"tokens": []}, {"error": "Unexpected endpoint or method"}])
def test_a_route_of_another_program_is_no_tokenizer(body: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as llama.cpp's and LM Studio's."""
    with RawServer() as server:
        right = server.answer
        monkeypatch.setattr(server, "answer", lambda at, asked: answer(body) if at == "/tokenize" else right(at, asked))
        client = ModelClient(server.url, "EMPTY", None)
        assert not client.tokenizer
        [one] = client.sample("Hello", stop=(), **SAMPLING).continuations  # type: ignore[arg-type]
        assert one.text == "Yes"
        client.close()


def test_a_server_like_llama_cpp(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its completions have logprobs in the chat API's form, with token ids; its list has the context size."""
    top = [{"id": 9, "token": "Yes", "logprob": -0.2, "bytes": [89]}, {"id": 8, "token": " No", "logprob": -2.0}]
    listed = {"content": [{**top[0], "top_logprobs": [*top, {"id": 2, "token": "", "logprob": None}]}]}
    models = {"data": [{"id": "raw", "meta": {"n_ctx": 4096, "n_ctx_train": 8192}}]}
    sent: list[dict[str, object]] = []
    with RawServer(lambda request: sent.append(request) or answer(completion(request, logprobs=listed))) as server:  # type: ignore[func-returns-value]
        right = server.answer
        monkeypatch.setattr(
            server, "answer", lambda at, body: answer(models) if at == "/v1/models" else right(at, body)
        )
        has = capabilities.probe(server.url, "EMPTY")
        assert (has.length, has.logprobs, has.token_ids, has.prompt_ids) == (4096, 1, True, False)
        assert not {feature.name for feature in FEATURES if feature.agents} & names(has)
        client = ModelClient(server.url, "EMPTY", None)
        assert client.length == 4096
        [score] = client.yes_no(["Is it?"])
        assert score == from_top({"Yes": -0.2, " No": -2.0})
        [one] = client.sample("Hello", stop=(), **SAMPLING).continuations  # type: ignore[arg-type]
        assert (one.token_ids, one.logprobs) == ([9], [-0.2])
        client.close()
    penalty = {"repetition_penalty": 1.02, "repeat_penalty": 1.02, "repeat_last_n": 4096}
    assert sent[-1].items() >= (penalty | {"top_p": 1.0, "min_p": 0.0, "logprobs": 1}).items()


@pytest.mark.parametrize(
    ("allowed", "status", "refusal"),
    [
        (4, "400 Bad Request", "Field 'n': Value must be between 1 <= value <= 4, but got 16"),
        (1, "500 Internal Server Error", "Only one completion choice is allowed"),
    ],
)
def test_choices_that_a_server_gives_in_several_answers(allowed: int, status: str, refusal: str) -> None:
    """llama.cpp gives one for each of its slots, older versions one, and its usage has the tokens of the first."""
    asked: list[tuple[int, int]] = []

    def reply(request: dict[str, Any]) -> bytes:
        asked.append((request["n"], request["seed"]))
        if request["n"] > allowed:
            return answer({"error": {"message": refusal}}, status)
        choices = completion(request)["choices"]
        for choice in choices:
            choice["text"] = str(request["seed"] + choice["index"])
        return answer({"choices": choices, "usage": {"prompt_tokens": 5, "completion_tokens": 1}})

    with RawServer(reply) as server:
        client = ModelClient(server.url, "EMPTY", None)
        with metered() as usage:
            many = client.sample("Hello", stop=(), **SAMPLING | {"n": 16})  # type: ignore[arg-type]
            few = client.sample("Hello", stop=(), **SAMPLING | {"n": 6})  # type: ignore[arg-type]
        client.close()
    assert [one.text for one in many.continuations] == [str(seed) for seed in range(1, 17)]
    assert [one.text for one in few.continuations] == [str(seed) for seed in range(1, 7)]
    parts = [(min(allowed, n - at), 1 + at) for n in (16, 6) for at in range(0, n, allowed)]
    assert asked == [(16, 1), *parts], "the limit is remembered"
    assert (usage.sequences, usage.prompt_tokens, usage.sampled_tokens) == (22, 5 * 22, 22)


def test_scores_of_a_server_that_lists_few_logprobs() -> None:
    asked: list[int] = []

    def reply(request: dict[str, Any]) -> bytes | None:
        asked.append(request["logprobs"])
        refusal = f"Requested sample logprobs of {asked[-1]}, which is greater than max allowed: 5"
        return answer({"error": {"message": refusal}}, "400 Bad Request") if asked[-1] > 5 else None

    with RawServer(reply) as server:
        client = ModelClient(server.url, "EMPTY", None)
        for _ in range(2):
            assert client.yes_no(["Is it?"]) == [from_top({"Yes": -0.2, "No": -2.0})]
        client.close()
    assert asked == [20, 5, 5], "the limit is remembered"


def test_special_tokens_end_a_text_by_their_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM leaves them out of its texts, so that as strings they end nothing."""
    words = {"<|im_end|>": [7], "<|im_start|>": [8], "#endblock": [1, 2], "\n": [3]}
    with RawServer() as server:
        right, sent = server.answer, list[dict[str, Any]]()

        def reply(at: str, body: dict[str, Any]) -> object:
            if at == "/tokenize":
                ids = words.get(body["prompt"], [4, 5])
                return answer({"count": len(ids), "tokens": ids})
            sent.append(body)
            return right(at, body)

        monkeypatch.setattr(server, "answer", reply)
        client = ModelClient(server.url, "EMPTY", None)
        client.sample(Tokens.of([1]), stop=("#endblock", "\n", "<|im_end|>", "<|im_start|>"), **SAMPLING)  # type: ignore[arg-type]
        client.close()
    assert sent[-1]["stop_token_ids"] == [7, 8]


def test_a_server_that_can_not_tell_its_template_is_said_to_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM with Mistral's own tokenizer applies it, but not to a conversation that ends with a reply."""
    with RawServer() as server:
        right = server.answer

        def reply(at: str, body: dict[str, Any]) -> object:
            if at == "/detokenize":
                return answer({"prompt": "".join(map(chr, body["tokens"]))})
            if at != "/tokenize":
                return right(at, body)
            if "messages" in body and body["messages"][-1]["role"] == "assistant":
                refusal = "Expected last role User or Tool (or Assistant with prefix True) but got assistant"
                return answer({"error": {"message": refusal}}, "400 Bad Request")
            text = body.get("prompt") or "".join(f"[INST]{one['content']}[/INST]" for one in body["messages"])
            return answer({"count": len(text), "tokens": [ord(char) for char in text]})

        monkeypatch.setattr(server, "answer", reply)
        has = capabilities.probe(server.url, "EMPTY")
    assert (has.prompt_ids, has.template) == (True, False)
    assert any(line.startswith("chat template:") and "--tokenizer-mode hf" in line for line in capabilities.lacks(has))


def test_tokens_of_a_server_like_sglang(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its /detokenize names the text otherwise, and leaves special tokens out if it is not asked for them."""
    with RawServer() as server:

        def reply(at: str, body: dict[str, object]) -> object:
            if at == "/detokenize":
                return answer({"text": "" if body.get("skip_special_tokens", True) else "<|im_end|>"})
            return right(at, body)

        right = server.answer
        monkeypatch.setattr(server, "answer", reply)
        client = ModelClient(server.url, "EMPTY", None)
        assert client.decode([2]) == "<|im_end|>"
        client.close()


def test_yes_and_no_with_a_tokenizer_that_puts_a_space_before_each_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of Llama 2 and Mistral 7B: the model may answer with a bare "Yes", which no text begins with."""
    words = ["\u2581", "\u2581Yes", "\u2581No", "Yes", "No", '"']

    def encode(self: ModelClient, text: str, *, bos: bool = False) -> Tokens:
        text, ids = "\u2581" + text.replace(" ", "\u2581"), []
        while text:
            word = max((word for word in words if text.startswith(word)), key=len, default="")
            ids.append(words.index(word) if word else 99)
            text = text[len(word) or 1 :]
        return Tokens.of(ids)

    monkeypatch.setattr(ModelClient, "tokenizer", "found")
    monkeypatch.setattr(ModelClient, "encode", encode)
    monkeypatch.setattr(ModelClient, "decode", lambda self, ids: words[ids[0]] if ids[0] < 99 else "?")
    client = ModelClient("http://127.0.0.1:9/v1", "EMPTY", "raw")
    assert client._find_sides() == {1: True, 2: False, 3: True, 4: False}
    client.close()


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("tools", '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'),
        ("temperature", "'temperature' does not support 0.7. Only the default (1) value is supported."),
    ],
)
def test_a_chat_api_that_refuses_a_parameter_by_other_words(name: str, reason: str) -> None:
    message = {"choices": [{"message": {"role": "assistant", "content": "Done."}, "finish_reason": "stop"}]}
    tools = (BlockType.SYSTEM, '<tools>\n{"type": "function", "function": {"name": "a"}}\n</tools>')
    refusal = {"error": {"message": reason}}
    with RawServer(lambda body: answer(refusal, "400 Bad Request") if name in body else answer(message)) as server:
        server.paths = ("/v1/chat/completions",)
        client = ChatClient(server.url, "EMPTY")
        said = [tools, (BlockType.USER, "Do it.")]
        assert client.sample("raw", said, temperature=0.7).continuations[0].text == "Done."
        client.close()


def test_a_text_has_the_bos_token_of_the_server_alone() -> None:
    with RawServer() as server:
        sent: list[object] = []
        server.reply = lambda body: sent.append((body["prompt"], body["add_special_tokens"]))
        client = ModelClient(server.url, "EMPTY", None)
        client.sample("<s>[INST] Hello", stop=(), **SAMPLING)  # type: ignore[arg-type]
        assert sent[-1] == ("[INST] Hello", True)
        client.close()


def test_a_server_that_tells_its_template_gets_conversations_as_tokens(tmp_path: Path) -> None:
    server = Process(tmp_path, "whole", "--port", "0")
    try:
        assert not ModelClient(server.url, "EMPTY", None).chats_better
    finally:
        server.kill()
