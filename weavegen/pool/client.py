"""The client of one vLLM server: samples continuations, asks yes/no questions, converts text to tokens and back.

Synchronous and safe to share between threads. It retries nothing: an error after which another attempt may succeed
is a TransientError, and the pool decides when and where to try again.
"""

import logging
import math
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from weavegen.errors import ModelError, TransientError
from weavegen.kernel.steps import YesNo
from weavegen.pool import metering, yes_no
from weavegen.pool.http import Http
from weavegen.pool.served import ServedModel, list_models, pick_model
from weavegen.pool.tokens import Text, Tokens

logger = logging.getLogger(__name__)

TOP_TOKENS = 20
"""Number of likeliest tokens requested where exact probabilities are unavailable: vLLM's default limit."""
MAX_STOPS = 4
"""Stop strings that vLLM 0.32 accepts."""
MAX_CACHED_TEXTS = 4096
"""Number of short texts whose tokens are cached."""
DEFAULT_CHARS_PER_TOKEN = 3.0
"""Estimated characters per token, for a server that can't tokenise and has not counted any prompt yet."""
_IMPOSSIBLE = -9999.0
"""vLLM's value for a logprob of minus infinity."""
_BOS = ("<s>", "<|begin_of_text|>", "<bos>", "<|startoftext|>")
"""If a prompt begins with one of these, the server must not add another."""

Prompt = str | Tokens
"""A prompt as text, or as token ids where the server can tokenise."""


class Continuation(msgspec.Struct, frozen=True, kw_only=True):
    """One sampled continuation of a prompt."""

    text: str
    finish_reason: str
    """`stop` or `length`."""
    token_ids: list[int] | None
    """Sampled tokens, with those of the stop string and after it; None if the server does not report them."""
    logprobs: list[float] | None
    """The model's logprob of each of `token_ids`."""


class Sampled(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a request for continuations."""

    continuations: list[Continuation]
    prompt_tokens: int | None
    """As counted by the server; None if it does not report them."""
    cached_tokens: int | None
    """Prompt tokens from the prefix cache; None if not reported (vLLM: `--enable-prompt-tokens-details`)."""


class _Logprobs(msgspec.Struct):
    tokens: list[str] = msgspec.field(default_factory=list)
    token_logprobs: list[float | None] = msgspec.field(default_factory=list)
    top_logprobs: list[dict[str, float] | None] | None = None


class Choice(msgspec.Struct):
    """A choice of a completion, as the server sends it."""

    index: int
    text: str = ""
    reasoning: str | None = None
    reasoning_content: str | None = None
    """Servers that separate a model's reasoning may put the whole text into one of these two."""
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None


class _Completion(msgspec.Struct):
    choices: list[Choice]
    usage: _Usage | None = None


class _Tokenized(msgspec.Struct):
    count: int
    tokens: list[int]


class _Detokenized(msgspec.Struct):
    prompt: str


class ModelClient:
    """The client of one model on one server."""

    def __init__(self, base_url: str, api_key: str, model: str | None, *, timeout: float = 600.0) -> None:
        """`base_url` ends in `/v1`. `model` None: the only model of the server. Sends nothing yet.

        `timeout`: seconds to wait for an answer.
        """
        self.base_url = base_url.rstrip("/")
        self._root = self.base_url.removesuffix("/v1")
        self._wanted = model
        self._http = Http(api_key, timeout)
        self._lock, self._finding = threading.Lock(), threading.Lock()
        self._served: ServedModel | None = None
        self._sides: dict[int, bool] | None = None
        self._tokenizes = self._prioritises = True
        """True until the server refuses it."""
        self._tokens: OrderedDict[str, Tokens] = OrderedDict()
        self._words: dict[int, str] = {}
        self._chars_per_token = DEFAULT_CHARS_PER_TOKEN
        """Characters per token: the lowest mean of a prompt so far, by the server's count."""

    @property
    def model(self) -> str:
        """The model's name. Raises UsageError if the server lacks it, or has several models and none was named."""
        return self._served_model().id

    @property
    def length(self) -> int | None:
        """Maximum tokens of a prompt and its continuation together; None if the server does not say."""
        return self._served_model().max_model_len

    @property
    def tokenizes(self) -> bool:
        """Whether the server converts text to token ids and accepts these as prompts, as vLLM does."""
        if self._tokenizes and not self._tokens:
            try:
                self.encode("#")
            except ModelError as error:
                logger.warning("%s can't tokenize (%s): prompts go to it as text", self.base_url, error)
                self._tokenizes = False
        return self._tokenizes

    def encode(self, text: str, *, begins: bool = False) -> Tokens:
        """Return the tokens of a text. Raises ModelError if the server can't tokenise.

        `begins`: the text begins a prompt, so the model's BOS token is added, unless the text begins with one.
        """
        special = begins and not text.startswith(_BOS)
        if not special and (known := self._tokens.get(text)) is not None:
            return known
        body = {"model": self.model, "prompt": text, "add_special_tokens": special}
        tokens = Tokens.of(self._http.post(f"{self._root}/tokenize", body, _Tokenized).tokens)
        if not special and len(text) < 20_000:
            with self._lock:
                self._tokens[text] = tokens
                if len(self._tokens) > MAX_CACHED_TEXTS:
                    self._tokens.popitem(last=False)
        return tokens

    def piece(self, text: str, *, begins: bool = False) -> Text | Tokens:
        """Convert a text to a piece of a prompt: its tokens, or the text with an estimated count."""
        if self.tokenizes:
            return self.encode(text, begins=begins)
        return Text(text, math.ceil(len(text) / self._chars_per_token))

    def word(self, token: int) -> str:
        """Return the text of one token."""
        if token not in self._words:
            self._words[token] = self.decode([token])
        return self._words[token]

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of a sequence of tokens."""
        if not tokens:
            return ""
        body = {"model": self.model, "tokens": list(tokens)}
        return without_nul(self._http.post(f"{self._root}/detokenize", body, _Detokenized).prompt)

    def sample(
        self,
        prompt: Prompt,
        *,
        n: int,
        max_tokens: int,
        temperature: float,
        top_k: int,
        repetition_penalty: float,
        seed: int,
        stop: Sequence[str],
        priority: int = 0,
    ) -> Sampled:
        """Sample `n` continuations of `prompt`, each ended at the first of the `stop` strings.

        The server gets the first MAX_STOPS stop strings; the client cuts the text at the others. `priority`:
        waiting requests with the lowest value go first.
        """
        answer = self._complete(
            [prompt],
            n,
            priority,
            max_tokens=max_tokens,
            temperature=temperature,
            top_p=1.0,  # else the model's generation_config applies
            top_k=top_k,
            repetition_penalty=repetition_penalty,
            seed=seed,
            stop=list(stop[:MAX_STOPS]),
            # `return_token_ids` would repeat the prompt's ids in each of the n choices.
            logprobs=0,
            return_tokens_as_token_ids=True,
        )
        usage = answer.usage or _Usage()
        if isinstance(prompt, str) and usage.prompt_tokens:
            self._chars_per_token = min(self._chars_per_token, len(prompt) / usage.prompt_tokens)
        return Sampled(
            continuations=[continuation(choice, stop[MAX_STOPS:]) for choice in answer.choices],
            prompt_tokens=usage.prompt_tokens,
            cached_tokens=usage.prompt_tokens_details.cached_tokens if usage.prompt_tokens_details else None,
        )

    def yes_no(self, prompts: Sequence[Prompt], *, priority: int = 0) -> list[YesNo]:
        """Return the probability mass of yes and of no as the next token of each prompt, before temperature."""
        if not prompts:
            return []
        if sides := self._find_sides():
            exact = self._exact(prompts, sides, priority)
            if exact is not None:
                return exact
            logger.warning("%s ignores logprob_token_ids: using the top %d tokens", self.base_url, TOP_TOKENS)
            self._sides = {}
        answer = self._complete(prompts, 1, priority, max_tokens=1, temperature=0.0, logprobs=TOP_TOKENS)
        return [yes_no.from_top(_top(choice)) for choice in answer.choices]

    def probe(self, seconds: float) -> None:
        """Sample one token within `seconds`. Raises the errors of a request."""
        body = {"model": self.model, "prompt": "#", "max_tokens": 1, "temperature": 0.0}
        self._http.post(f"{self.base_url}/completions", body, _Completion, seconds)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _served_model(self) -> ServedModel:
        if self._served is None:
            self._served = pick_model(self._wanted, list_models(self.base_url, self._http), self.base_url)
        return self._served

    # ------------------------------------------------------------------------------------------ yes/no

    def _find_sides(self) -> dict[int, bool]:
        """Find the single tokens that mean yes or no, once. Empty: use the top logprobs."""
        with self._finding:  # a hundred short requests: one thread makes them while the others wait
            if self._sides is None:
                sides: dict[int, bool] = {}
                if self.tokenizes:
                    for text in yes_no.variants():
                        ids, meant = self.encode(text).ids, yes_no.side(text)
                        if len(ids) == 1 and meant is not None and len(sides) < yes_no.MAX_IDS:
                            sides.setdefault(ids[0], meant)
                self._sides = sides
            return self._sides

    def _exact(self, prompts: Sequence[Prompt], sides: Mapping[int, bool], priority: int) -> list[YesNo] | None:
        """Ask with `logprob_token_ids`. Returns None if the server ignores or rejects it.

        The sampled token is listed, too: at temperature 0 it is always the likeliest one. The temperature does not
        change the logprobs, which vLLM takes before it.
        """
        options = {"max_tokens": 1, "temperature": 0.0, "top_k": 0, "repetition_penalty": 1.0}
        ids = {"logprobs": 1, "logprob_token_ids": list(sides), "return_tokens_as_token_ids": True}
        try:
            answer = self._complete(prompts, 1, priority, **options, **ids)
        except ModelError as error:
            if "logprob_token_ids" in str(error):
                return None
            raise
        exact = [yes_no.from_ids(_top(choice), sides, choice.text) for choice in answer.choices]
        complete = [answer for answer in exact if answer is not None]
        return complete if len(complete) == len(exact) else None

    # -------------------------------------------------------------------------------------------- HTTP

    def _complete(self, prompts: Sequence[Prompt], n: int, priority: int, **options: Any) -> _Completion:
        """Request `n` choices for every prompt, and return them in order."""
        body = {
            "model": self.model,
            "prompt": _as_json(prompts),
            "n": n,
            "add_special_tokens": isinstance(prompts[0], str) and not prompts[0].startswith(_BOS),
            **options,
        }
        url = f"{self.base_url}/completions"
        prioritised = {"priority": priority} if priority and self._prioritises else {}
        try:
            answer = self._http.post(url, body | prioritised, _Completion)
        except ModelError as error:
            if not prioritised or "priority" not in str(error).lower():
                raise
            logger.warning("%s lacks `--scheduling-policy priority`: old traces don't go first", self.base_url)
            self._prioritises = False
            answer = self._http.post(url, body, _Completion)
        usage = answer.usage or _Usage()
        details = usage.prompt_tokens_details
        # Of several prompts vLLM reports the cached tokens of the last one.
        cached = details.cached_tokens if details is not None and len(prompts) == 1 else None
        metering.count(len(prompts), n, usage.prompt_tokens, cached, usage.completion_tokens)
        if sorted(choice.index for choice in answer.choices) != list(range(len(prompts) * n)):
            count = len(answer.choices)
            raise TransientError(f"{self.base_url} answered {count} choices for {len(prompts)} x {n}")
        answer.choices.sort(key=lambda choice: choice.index)
        return answer


def _as_json(prompts: Sequence[Prompt]) -> Any:
    """Convert prompts to the API's form: a single prompt, or a list. Token ids are JSON already."""
    encoded = [prompt if isinstance(prompt, str) else msgspec.Raw(b"[%b]" % prompt.json) for prompt in prompts]
    return encoded[0] if len(encoded) == 1 else encoded


def continuation(choice: Choice, stop: Sequence[str]) -> Continuation:
    """Convert a choice to a continuation, cut at the first of the `stop` strings."""
    text = choice.text or choice.reasoning or choice.reasoning_content or ""
    end = min((at for word in stop if (at := text.find(word)) >= 0), default=None)
    listed = choice.logprobs
    ids = logprobs = None
    if listed is not None and all(token.startswith("token_id:") for token in listed.tokens):
        ids = [int(token[len("token_id:") :]) for token in listed.tokens]
        logprobs = [_IMPOSSIBLE if value is None else value for value in listed.token_logprobs]
    finish = "stop" if end is not None or choice.finish_reason is None else choice.finish_reason
    return Continuation(text=without_nul(text[:end]), finish_reason=finish, token_ids=ids, logprobs=logprobs)


def without_nul(text: str) -> str:
    """Replace NUL, which Postgres can't store, by U+FFFD, which decoders use for invalid bytes."""
    return text.replace("\x00", "\ufffd")


def _top(choice: Choice) -> dict[str, float]:
    """Return the logprobs listed for the only sampled token, by text."""
    positions = choice.logprobs.top_logprobs if choice.logprobs else None
    return (positions[0] if positions else None) or {}
