"""Requests, responses and errors in the form of vLLM 0.32: the fields that weavegen's client sends and reads."""

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any

import msgspec

MAX_STOPS = 4
MAX_LOGPROBS = 20
MAX_IDS = 128
"""vLLM's limits on `stop`, `logprobs` and `logprob_token_ids`."""


class BadRequest(Exception):
    """The request is invalid. The attributes are the values of vLLM's error body."""

    def __init__(self, message: str, *, param: str | None = None, status: int = 400) -> None:
        super().__init__(message)
        self.message, self.param, self.status = message, param, status


class CompletionRequest(msgspec.Struct):
    """The body of `/v1/completions`. Like vLLM, the server ignores other fields."""

    prompt: str | list[str | int | list[int]] | None = None
    """Text or token ids, one prompt or several."""
    add_special_tokens: bool = True
    """Whether a text prompt gets the BOS token."""
    priority: int = 0
    """Requests with lower values run first."""
    model: str | None = None
    n: int = 1
    max_tokens: int | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    repetition_penalty: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    logprobs: int | None = None
    logprob_token_ids: list[int] | None = None
    return_tokens_as_token_ids: bool | None = None
    stream: bool | None = None
    echo: bool | None = None


class TokenizeRequest(msgspec.Struct):
    """The body of `/tokenize`: a text, or messages to which the chat template is applied."""

    prompt: str | None = None
    messages: list[dict[str, str]] | None = None
    add_generation_prompt: bool = True
    """Whether the text of messages ends with the beginning of the assistant's next message."""
    add_special_tokens: bool | None = None
    """Default: true for a text, false for messages, whose template has the special tokens."""


class AdapterRequest(msgspec.Struct):
    """The body of `/v1/load_lora_adapter` and `/v1/unload_lora_adapter`."""

    lora_name: str
    lora_path: str = ""


class DetokenizeRequest(msgspec.Struct):
    tokens: list[int]


class Logprobs(msgspec.Struct):
    text_offset: list[int]
    token_logprobs: list[float]
    tokens: list[str]
    top_logprobs: list[dict[str, float]]


class Choice(msgspec.Struct):
    index: int
    text: str
    logprobs: Logprobs | None
    finish_reason: str
    stop_reason: str | None


class TokensDetails(msgspec.Struct):
    cached_tokens: int


class Usage(msgspec.Struct):
    prompt_tokens: int
    total_tokens: int
    completion_tokens: int
    prompt_tokens_details: TokensDetails | None = None


class CompletionResponse(msgspec.Struct, kw_only=True):
    id: str = msgspec.field(default_factory=lambda: f"cmpl-{secrets.token_hex(8)}")
    created: int = msgspec.field(default_factory=lambda: int(time.time()))
    choices: list[Choice]
    usage: Usage
    model: str
    system_fingerprint: str
    object: str = "text_completion"


class TokenizeResponse(msgspec.Struct):
    count: int
    max_model_len: int
    tokens: list[int]


def error_body(message: str, status: int, param: str | None = None) -> dict[str, Any]:
    kinds = {400: "BadRequestError", 404: "NotFoundError", 429: "RateLimitError", 500: "InternalServerError"}
    return {"error": {"message": message, "type": kinds.get(status, "Error"), "param": param, "code": status}}


def check(request: CompletionRequest, models: Sequence[str], vocabulary: int, *, priorities: bool) -> None:
    """Check a request as vLLM does, with its messages. Raises BadRequest.

    `models`: names of the served models. `vocabulary`: number of token ids. `priorities`: whether the server
    accepts priorities.
    """
    if request.model is not None and request.model not in models:
        message = f"The model `{request.model}` does not exist. Valid aliases: {', '.join(models)}."
        raise BadRequest(message, param="model", status=404)
    if request.stream or request.echo:
        raise BadRequest("This server supports neither `stream` nor `echo`.", param="stream")
    n, most, stop, priority = request.n, request.max_tokens, request.stop, request.priority
    if n < 1:
        raise BadRequest(f"n must be at least 1, got {n}.", param="n")
    if most is not None and most < 1:
        raise BadRequest(f"max_tokens must be at least 1, got {most}.", param="max_tokens")
    if priority and not priorities:
        raise BadRequest(f"Got priority {priority} but Priority scheduling is not enabled.", param="priority")
    ids, listed, problem = request.logprob_token_ids or (), request.logprobs or 0, None
    if ids and request.logprobs is None:
        problem = "when using `logprob_token_ids`, `logprobs` must be set."
    elif len(ids) > MAX_IDS:
        problem = f"Requested logprob_token_ids of length {len(ids)}, which is greater than max allowed: {MAX_IDS}"
    elif unknown := [number for number in ids if not 0 <= number < vocabulary]:
        problem = f"token_id(s) {unknown} in logprob_token_ids contain out-of-vocab token ids."
    if problem is not None:
        raise BadRequest(problem, param="logprob_token_ids")
    if isinstance(stop, list) and len(stop) > MAX_STOPS:
        problem = f"List should have at most {MAX_STOPS} items after validation, not {len(stop)}"
        raise BadRequest(problem, param="stop")
    if not ids and listed > MAX_LOGPROBS:
        problem = f"Requested sample logprobs of {listed}, which is greater than max allowed: {MAX_LOGPROBS}"
        raise BadRequest(problem, param="logprobs")


def prompts(request: CompletionRequest) -> list[str | list[int]]:
    """Return the request's prompts, each a text or token ids. Raises BadRequest."""
    prompt = request.prompt
    if prompt is None or prompt == "" or prompt == []:
        raise BadRequest("Either prompt or prompt_embeds must be provided and non-empty.", param="prompt")
    items = [prompt] if isinstance(prompt, str) else prompt
    if len({type(item) for item in items}) > 1:
        raise BadRequest(
            "prompt must be a text, token ids, a list of texts, or a list of lists of token ids.", param="prompt"
        )
    ids = [item for item in items if isinstance(item, int)]
    return [ids] if ids else [item for item in items if not isinstance(item, int)]


def stops(request: CompletionRequest) -> tuple[str, ...]:
    return (request.stop,) if isinstance(request.stop, str) else tuple(request.stop or ())


def max_new_tokens(request: CompletionRequest, tokens: int, length: int) -> int:
    """Return how many tokens to sample: `max_tokens`, at most what a prompt of `tokens` leaves of the context.

    `length`: tokens of the context. Raises BadRequest if the prompt leaves nothing.
    """
    left = length - tokens
    if left < 0:
        message = (
            f"This model's maximum context length is {length} tokens. However, your prompt contains "
            f"{tokens} input tokens, which exceeds this limit even without any output tokens. Please reduce the "
            f"length of the input prompt. (parameter=input_tokens, value={tokens})"
        )
        raise BadRequest(message, param="input_tokens")
    if left == 0:
        raise BadRequest("max_tokens must be at least 1, got 0. (parameter=max_tokens, value=0)", param="max_tokens")
    return min(left, 16 if request.max_tokens is None else request.max_tokens)


def completion_logprobs(
    request: CompletionRequest, ids: Sequence[int], tops: Sequence[Mapping[int, float]], text: Callable[[int], str]
) -> Logprobs:
    """Make the logprobs of a choice. `tops`: for each of `ids`, logprobs by token id, including its own logprob.

    `text` returns the text of a token. As in vLLM, the keys are texts unless the request wants ids, so tokens with
    the same text share a key.
    """
    name = placeholder if request.return_tokens_as_token_ids else text
    tokens = [name(token) for token in ids]
    return Logprobs(
        text_offset=list(accumulate(map(len, tokens), initial=0))[: len(tokens)],
        token_logprobs=[top[token] for token, top in zip(ids, tops, strict=True)],
        tokens=tokens,
        top_logprobs=[{name(token): logprob for token, logprob in top.items()} for top in tops],
    )


@lru_cache(maxsize=65536)
def placeholder(token: int) -> str:
    """Return the text of a token for a request that wants ids."""
    return f"token_id:{token}"
