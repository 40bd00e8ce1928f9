"""The model client: what weavegen asks of one vLLM server.

Synchronous and safe to share between threads. Nothing is retried here: what may succeed later is raised as
TransientError, and the pool decides when and where.
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
from weavegen.pool.served import Served, pick, served
from weavegen.pool.tokens import Text, Tokens

logger = logging.getLogger(__name__)

TOP = 20
"""Likeliest tokens asked for where exact mass can't be had: vLLM's default limit."""
STOPS = 4
"""Stop strings that vLLM 0.32 takes; more are refused."""
REMEMBERED = 4096
"""Short texts whose tokens are remembered."""
CHARACTERS = 3.0
"""Of a token, of a server that can't tokenise and has not counted any prompt yet."""
_IMPOSSIBLE = -9999.0
"""What vLLM writes for a logprob of minus infinity."""
_BOS = ("<s>", "<|begin_of_text|>", "<bos>", "<|startoftext|>")
"""A prompt that begins with one of these brings its own: the server must not put another in front."""

Prompt = str | Tokens
"""What the model reads: as text, or as token ids where the server can tokenise."""


class Continuation(msgspec.Struct, frozen=True, kw_only=True):
    """One sampled continuation of a prompt."""

    text: str
    finish_reason: str
    """`stop` or `length`, as the server says."""
    token_ids: list[int] | None
    """Tokens sampled, those of a stop string (and after one that was cut here) included; None if not told."""
    logprobs: list[float] | None
    """The model's own logprob of each of `token_ids`."""


class Sampled(msgspec.Struct, frozen=True, kw_only=True):
    """What one request for continuations brought."""

    continuations: list[Continuation]
    prompt_tokens: int | None
    """As the server counted them; None if it did not say."""
    cached_tokens: int | None
    """Of these, the ones that its prefix cache held; None if it did not say (`--enable-prompt-tokens-details`)."""


class _Logprobs(msgspec.Struct):
    tokens: list[str] = msgspec.field(default_factory=list)
    token_logprobs: list[float | None] = msgspec.field(default_factory=list)
    top_logprobs: list[dict[str, float] | None] | None = None


class Choice(msgspec.Struct):
    """One of a completion's, as the server sends it."""

    index: int
    text: str = ""
    reasoning: str | None = None
    reasoning_content: str | None = None
    """Where servers that split off what a model thinks may have put all of the text."""
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
    """One server, one model."""

    def __init__(self, base_url: str, api_key: str, model: str | None, *, timeout: float = 600.0) -> None:
        """`base_url` ends in `/v1`; `model` None means the only one that the server lists.

        `timeout`: seconds to wait for an answer. Nothing is sent before the first call.
        """
        self.base_url = base_url.rstrip("/")
        self._root = self.base_url.removesuffix("/v1")
        self._wanted = model
        self._http = Http(api_key, timeout)
        self._lock, self._finding = threading.Lock(), threading.Lock()
        self._served: Served | None = None
        self._sides: dict[int, bool] | None = None
        self._tokenizes = self._prioritises = True
        """Until the server refuses to."""
        self._tokens: OrderedDict[str, Tokens] = OrderedDict()
        self._words: dict[int, str] = {}
        self._characters = CHARACTERS
        """Of a token: the fewest that a prompt had on average, by the server's own count."""

    @property
    def model(self) -> str:
        """The model's name. Raises UsageError if the server lacks the one asked for, or has several."""
        return self._about().id

    @property
    def length(self) -> int | None:
        """Tokens that a prompt and its continuation may have together; None if the server does not say."""
        return self._about().max_model_len

    @property
    def tokenizes(self) -> bool:
        """Whether the server turns text into token ids, and takes these as prompts: vLLM does."""
        if self._tokenizes and not self._tokens:
            try:
                self.encode("#")
            except ModelError as error:
                logger.warning("%s can't tokenize (%s): prompts go to it as text", self.base_url, error)
                self._tokenizes = False
        return self._tokenizes

    def encode(self, text: str, *, begins: bool = False) -> Tokens:
        """The tokens of a text by itself. Raises ModelError if the server can't tell.

        `begins`: a prompt begins with it, so the model's BOS goes in front, unless the text brings one.
        """
        special = begins and not text.startswith(_BOS)
        if not special and (known := self._tokens.get(text)) is not None:
            return known
        body = {"model": self.model, "prompt": text, "add_special_tokens": special}
        found = Tokens.of(self._http.post(f"{self._root}/tokenize", body, _Tokenized).tokens)
        if not special and len(text) < 20_000:
            with self._lock:
                self._tokens[text] = found
                if len(self._tokens) > REMEMBERED:
                    self._tokens.popitem(last=False)
        return found

    def piece(self, text: str, *, begins: bool = False) -> Text | Tokens:
        """A text as this server takes it: its tokens, or the text and about how many there are."""
        if self.tokenizes:
            return self.encode(text, begins=begins)
        return Text(text, math.ceil(len(text) / self._characters))

    def word(self, token: int) -> str:
        """The text of a token by itself."""
        if token not in self._words:
            self._words[token] = self.decode([token])
        return self._words[token]

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of some tokens together."""
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
        """`n` continuations of `prompt`, each ended at the first of the `stop` strings.

        The server is told of the first four, which is all that vLLM takes; at the others the text is cut here.
        `priority`: of the requests that wait in the server, those with the lowest go first.
        """
        answer = self._complete(
            [prompt],
            n,
            priority,
            max_tokens=max_tokens,
            temperature=temperature,
            top_p=1.0,  # else the model's own generation_config decides
            top_k=top_k,
            repetition_penalty=repetition_penalty,
            seed=seed,
            stop=list(stop[:STOPS]),
            # Token ids by this way: `return_token_ids` would repeat the prompt's ids in each of n choices.
            logprobs=0,
            return_tokens_as_token_ids=True,
        )
        usage = answer.usage or _Usage()
        if isinstance(prompt, str) and usage.prompt_tokens:
            self._characters = min(self._characters, len(prompt) / usage.prompt_tokens)
        return Sampled(
            continuations=[continuation(choice, stop[STOPS:]) for choice in answer.choices],
            prompt_tokens=usage.prompt_tokens,
            cached_tokens=usage.prompt_tokens_details.cached_tokens if usage.prompt_tokens_details else None,
        )

    def yes_no(self, prompts: Sequence[Prompt], *, priority: int = 0) -> list[YesNo]:
        """Mass of yes and of no as the next token of each prompt, as the model itself gives it."""
        if not prompts:
            return []
        if sides := self._find_sides():
            exact = self._exact(prompts, sides, priority)
            if exact is not None:
                return exact
            logger.warning("%s does not take logprob_token_ids: using the top %d", self.base_url, TOP)
            self._sides = {}
        answer = self._complete(prompts, 1, priority, max_tokens=1, temperature=0.0, logprobs=TOP)
        return [yes_no.from_top(_top(choice)) for choice in answer.choices]

    def probe(self, seconds: float) -> None:
        """Have one token sampled within some seconds. Raises what any request does if the server is not well."""
        body = {"model": self.model, "prompt": "#", "max_tokens": 1, "temperature": 0.0}
        self._http.post(f"{self.base_url}/completions", body, _Completion, seconds)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _about(self) -> Served:
        if self._served is None:
            self._served = pick(self._wanted, served(self.base_url, self._http), self.base_url)
        return self._served

    # ------------------------------------------------------------------------------------------ yes/no

    def _find_sides(self) -> dict[int, bool]:
        """Ids of the single tokens that mean yes or no, found once; none: use the top logprobs."""
        with self._finding:  # a hundred short requests: one thread makes them, the others wait
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
        """By `logprob_token_ids`; None if the server ignores or rejects it.

        Temperature 0 makes the sampled token, which is listed too, the likeliest one: the same every time.
        The logprobs are the model's own all the same: vLLM takes them before the temperature.
        """
        try:
            answer = self._complete(
                prompts,
                1,
                priority,
                max_tokens=1,
                temperature=0.0,
                logprobs=1,
                logprob_token_ids=list(sides),
                return_tokens_as_token_ids=True,
                top_k=0,
                repetition_penalty=1.0,
            )
        except ModelError as error:
            if "logprob_token_ids" in str(error):
                return None
            raise
        exact = [yes_no.from_ids(_top(choice), sides, choice.text) for choice in answer.choices]
        found = [answer for answer in exact if answer is not None]
        return found if len(found) == len(exact) else None

    # -------------------------------------------------------------------------------------------- HTTP

    def _complete(self, prompts: Sequence[Prompt], n: int, priority: int, **options: Any) -> _Completion:
        """`n` choices of every prompt, in order."""
        body = {
            "model": self.model,
            "prompt": _as_json(prompts),
            "n": n,
            "add_special_tokens": isinstance(prompts[0], str) and not prompts[0].startswith(_BOS),
            **options,
        }
        if priority and self._prioritises:
            try:
                answer = self._post(body | {"priority": priority})
            except ModelError as error:
                if "priority" not in str(error).lower():
                    raise
                logger.warning(
                    "%s: no `--scheduling-policy priority`, so old traces don't go first", self.base_url
                )
                self._prioritises = False
                answer = self._post(body)
        else:
            answer = self._post(body)
        usage = answer.usage or _Usage()
        told = usage.prompt_tokens_details
        cached = told.cached_tokens if told is not None and len(prompts) == 1 else None  # vLLM: of the last prompt
        metering.count(len(prompts), n, usage.prompt_tokens, cached, usage.completion_tokens)
        if sorted(choice.index for choice in answer.choices) != list(range(len(prompts) * n)):
            count = len(answer.choices)
            raise TransientError(f"{self.base_url} answered {count} choices for {len(prompts)} x {n}")
        answer.choices.sort(key=lambda choice: choice.index)
        return answer

    def _post(self, body: Mapping[str, Any]) -> _Completion:
        return self._http.post(f"{self.base_url}/completions", body, _Completion)


def _as_json(prompts: Sequence[Prompt]) -> Any:
    """Prompts as the API takes them: one by itself, or a list; token ids as they are encoded already."""
    encoded = [prompt if isinstance(prompt, str) else msgspec.Raw(b"[%b]" % prompt.json) for prompt in prompts]
    return encoded[0] if len(encoded) == 1 else encoded


def continuation(choice: Choice, stop: Sequence[str]) -> Continuation:
    """What a choice says, cut at the first of the `stop` strings."""
    text = choice.text or choice.reasoning or choice.reasoning_content or ""
    end = min((at for word in stop if (at := text.find(word)) >= 0), default=None)
    told = choice.logprobs
    ids = logprobs = None
    if told is not None and all(token.startswith("token_id:") for token in told.tokens):
        ids = [int(token[len("token_id:") :]) for token in told.tokens]
        logprobs = [_IMPOSSIBLE if value is None else value for value in told.token_logprobs]
    finish = "stop" if end is not None or choice.finish_reason is None else choice.finish_reason
    return Continuation(text=without_nul(text[:end]), finish_reason=finish, token_ids=ids, logprobs=logprobs)


def without_nul(text: str) -> str:
    """A text of tokens as Postgres takes it: U+FFFD for NUL, as decoders put it for bytes that are no text."""
    return text.replace("\x00", "\ufffd")


def _top(choice: Choice) -> dict[str, float]:
    """Listed tokens of the only position."""
    positions = choice.logprobs.top_logprobs if choice.logprobs else None
    return (positions[0] if positions else None) or {}
