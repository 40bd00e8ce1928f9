"""Requests and responses of the simulation, in the shape that vLLM 0.32 gives them."""

from typing import Any

import msgspec

from weavegen.sim import MODEL


class BadRequest(Exception):
    """The request is refused; vLLM's body for errors is made of this."""

    def __init__(self, message: str, *, param: str | None = None, status: int = 400) -> None:
        super().__init__(message)
        self.message, self.param, self.status = message, param, status


class CompletionRequest(msgspec.Struct):
    """What is read of `/v1/completions`; other fields are ignored, as vLLM does."""

    prompt: str | list[str | int | list[int]] | None = None
    """Text or token ids, one prompt or several."""
    add_special_tokens: bool = True
    """Whether a token that begins the text is put in front of a prompt that is text."""
    priority: int = 0
    """Lower: earlier."""
    model: str | None = None
    n: int = 1
    max_tokens: int | None = None
    temperature: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    include_stop_str_in_output: bool = False
    logprobs: int | None = None
    logprob_token_ids: list[int] | None = None
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None
    stream: bool | None = None
    echo: bool | None = None


class TokenizeRequest(msgspec.Struct):
    prompt: str
    model: str | None = None
    add_special_tokens: bool = True
    return_token_strs: bool | None = None


class DetokenizeRequest(msgspec.Struct):
    tokens: list[int]
    model: str | None = None


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
    token_ids: list[int] | None = None
    prompt_logprobs: None = None
    prompt_token_ids: list[int] | None = None
    routed_experts: None = None


class TokensDetails(msgspec.Struct):
    cached_tokens: int


class Usage(msgspec.Struct):
    prompt_tokens: int
    total_tokens: int
    completion_tokens: int
    prompt_tokens_details: TokensDetails | None = None
    completion_tokens_details: None = None


class CompletionResponse(msgspec.Struct):
    id: str
    created: int
    choices: list[Choice]
    usage: Usage
    object: str = "text_completion"
    model: str = MODEL
    service_tier: None = None
    system_fingerprint: str = MODEL
    kv_transfer_params: None = None
    ec_transfer_params: None = None
    metrics: None = None


class TokenizeResponse(msgspec.Struct):
    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None = None


def error_body(message: str, status: int, param: str | None = None) -> dict[str, Any]:
    """vLLM's body of an error response."""
    kinds = {400: "BadRequestError", 404: "NotFoundError", 429: "RateLimitError", 500: "InternalServerError"}
    return {"error": {"message": message, "type": kinds.get(status, "Error"), "param": param, "code": status}}
