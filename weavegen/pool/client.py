"""The model client: what weavegen asks of one vLLM server, over the openai library.

Synchronous and safe to share between threads. Nothing is retried here: what may succeed later is raised as
TransientError and the task layer decides when.
"""

import json
import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
import openai

from weavegen.errors import ModelError, TransientError
from weavegen.pool import yes_no
from weavegen.pool.served import BUSY, pick, served
from weavegen.steps import YesNo

logger = logging.getLogger(__name__)

TOP = 20
"""Likeliest tokens asked for where exact mass can't be had: vLLM's default limit."""
STOPS = 4
"""Stop strings that vLLM 0.32 takes; more are refused."""
_IMPOSSIBLE = -9999.0
"""What vLLM writes for a logprob of minus infinity."""
_BOS = ("<s>", "<|begin_of_text|>", "<bos>", "<|startoftext|>")
"""A prompt that begins with one of these brings its own: the server must not put another in front."""


class Continuation(msgspec.Struct, frozen=True, kw_only=True):
    """One sampled continuation of a prompt."""

    text: str
    finish_reason: str
    """`stop` or `length`, as the server says."""
    token_ids: list[int] | None
    """Tokens sampled, those of a stop string (and after one that was cut here) included; None if not told."""
    logprobs: list[float] | None
    """The model's own logprob of each of `token_ids`."""


class _Logprobs(msgspec.Struct):
    tokens: list[str] = msgspec.field(default_factory=list)
    token_logprobs: list[float | None] = msgspec.field(default_factory=list)
    top_logprobs: list[dict[str, float] | None] | None = None


class _Choice(msgspec.Struct):
    index: int
    text: str
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None


class _Completion(msgspec.Struct):
    choices: list[_Choice]


class _Tokenized(msgspec.Struct):
    count: int
    tokens: list[int]


@dataclass
class _Known:
    """What was found out about the server, once."""

    model: str | None = None
    sides: dict[int, bool] | None = None
    """Token ids that mean yes or no; empty: use the top logprobs."""


class ModelClient:
    """One server, one model."""

    def __init__(self, base_url: str, api_key: str, model: str | None, *, timeout: float = 300.0) -> None:
        """`base_url` ends in `/v1`; `model` None means the only one that the server lists.

        `timeout`: seconds to wait for an answer. Nothing is sent before the first call.
        """
        self.base_url = base_url.rstrip("/")
        self._root = self.base_url.removesuffix("/v1")
        self._wanted, self._api_key = model, api_key
        self._openai = openai.OpenAI(
            base_url=self.base_url,
            api_key=api_key,
            max_retries=0,
            timeout=openai.Timeout(timeout, connect=min(5.0, timeout)),
        )
        self._lock = threading.Lock()
        self._known = _Known()

    @property
    def model(self) -> str:
        """The model's name. Raises UsageError if the server lacks the one asked for, or has several."""
        if self._known.model is None:
            self._known.model = pick(self._wanted, served(self.base_url, self._api_key), self.base_url)
        return self._known.model

    def sample(
        self,
        prompt: str,
        *,
        n: int,
        max_tokens: int,
        temperature: float,
        top_k: int,
        repetition_penalty: float,
        seed: int,
        stop: Sequence[str],
    ) -> list[Continuation]:
        """`n` continuations of `prompt`, each ended at the first of the `stop` strings.

        The server is told of the first four, which is all that vLLM takes; at the others the text is cut here.
        """
        choices = self._complete(
            [prompt],
            n,
            max_tokens=max_tokens,
            temperature=temperature,
            top_p=1.0,  # else the model's own generation_config decides
            seed=seed,
            stop=list(stop[:STOPS]),
            # Token ids by this way: `return_token_ids` would repeat the prompt's ids in each of n choices.
            logprobs=0,
            extra_body={
                "top_k": top_k,
                "repetition_penalty": repetition_penalty,
                "return_tokens_as_token_ids": True,
                "add_special_tokens": not prompt.startswith(_BOS),
            },
        )
        return [_continuation(choice, stop[STOPS:]) for choice in choices]

    def yes_no(self, prompts: Sequence[str]) -> list[YesNo]:
        """Mass of yes and of no as the next token of each prompt, as the model itself gives it."""
        if not prompts:
            return []
        if sides := self._sides():
            exact = self._exact(prompts, sides)
            if exact is not None:
                return exact
            logger.warning("%s does not take logprob_token_ids: using the top %d", self.base_url, TOP)
            self._known.sides = {}
        choices = self._complete(prompts, 1, max_tokens=1, temperature=0.0, logprobs=TOP)
        return [yes_no.from_top(_top(choice)) for choice in choices]

    def count_tokens(self, text: str) -> int:
        """Tokens of `text`, without those that the server would put in front."""
        return self._tokenize(text).count

    def close(self) -> None:
        """Close the connections."""
        self._openai.close()

    # ------------------------------------------------------------------------------------------ yes/no

    def _sides(self) -> dict[int, bool]:
        """Ids of the single tokens that mean yes or no, found once per server."""
        if self._known.sides is None:
            with self._lock:
                if self._known.sides is None:
                    self._known.sides = self._find_sides()
        return self._known.sides

    def _find_sides(self) -> dict[int, bool]:
        sides: dict[int, bool] = {}
        try:
            for text in yes_no.variants():
                tokens, meant = self._tokenize(text).tokens, yes_no.side(text)
                if len(tokens) == 1 and meant is not None and len(sides) < yes_no.MAX_IDS:
                    sides.setdefault(tokens[0], meant)
        except ModelError as error:
            logger.warning("%s can't tokenize (%s): using the top %d logprobs", self.base_url, error, TOP)
            return {}
        return sides

    def _exact(self, prompts: Sequence[str], sides: Mapping[int, bool]) -> list[YesNo] | None:
        """By `logprob_token_ids`; None if the server ignores or rejects it.

        Temperature 0 makes the sampled token, which is listed too, the likeliest one: the same every time.
        The logprobs are the model's own all the same: vLLM takes them before the temperature.
        """
        extra = {
            "logprob_token_ids": list(sides),
            "return_tokens_as_token_ids": True,
            "top_k": 0,
            "repetition_penalty": 1.0,
            "add_special_tokens": not prompts[0].startswith(_BOS),
        }
        try:
            choices = self._complete(prompts, 1, max_tokens=1, temperature=0.0, logprobs=1, extra_body=extra)
        except ModelError as error:
            if "logprob_token_ids" in str(error):
                return None
            raise
        exact = [yes_no.from_ids(_top(choice), sides, choice.text) for choice in choices]
        found = [answer for answer in exact if answer is not None]
        return found if len(found) == len(exact) else None

    # -------------------------------------------------------------------------------------------- HTTP

    def _complete(self, prompts: Sequence[str], n: int, **options: Any) -> list[_Choice]:
        model = self.model
        with _errors(self.base_url):
            prompt = prompts[0] if len(prompts) == 1 else list(prompts)
            # Raw, because turning thousands of logprobs into the library's models costs more than the call.
            raw = self._openai.completions.with_raw_response.create(model=model, prompt=prompt, n=n, **options)
            choices = msgspec.json.decode(raw.content, type=_Completion).choices
        if sorted(choice.index for choice in choices) != list(range(len(prompts) * n)):
            raise TransientError(f"{self.base_url} answered {len(choices)} choices for {len(prompts)} x {n}")
        return sorted(choices, key=lambda choice: choice.index)

    def _tokenize(self, text: str) -> _Tokenized:
        body = {"model": self.model, "prompt": text, "add_special_tokens": False}
        with _errors(self.base_url):
            answer = self._openai.post(f"{self._root}/tokenize", body=body, cast_to=object)
            return msgspec.convert(answer, _Tokenized)


@contextmanager
def _errors(url: str) -> Iterator[None]:
    """What the library raises, as what weavegen raises."""
    try:
        yield
    except openai.APITimeoutError:
        raise TransientError(f"{url} did not answer in time") from None
    except openai.APIConnectionError as error:
        raise TransientError(f"no connection to {url}: {error.__cause__ or error}") from None
    except openai.APIStatusError as error:
        said = f"{url} answered {error.status_code}: {_message(error)}"
        if error.status_code in BUSY or error.status_code >= 500:
            raise TransientError(said) from None
        raise ModelError(said) from None
    except (msgspec.MsgspecError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise TransientError(f"{url} answered what can't be read: {error}") from None


def _message(error: openai.APIStatusError) -> str:
    message = error.body.get("message") if isinstance(error.body, dict) else None
    return str(message or error.message)[:2000]


def _continuation(choice: _Choice, stop: Sequence[str]) -> Continuation:
    end = min((at for word in stop if (at := choice.text.find(word)) >= 0), default=None)
    told = choice.logprobs
    ids = logprobs = None
    if told is not None and all(token.startswith("token_id:") for token in told.tokens):
        ids = [int(token[len("token_id:") :]) for token in told.tokens]
        logprobs = [_IMPOSSIBLE if value is None else value for value in told.token_logprobs]
    finish = "stop" if end is not None or choice.finish_reason is None else choice.finish_reason
    return Continuation(text=choice.text[:end], finish_reason=finish, token_ids=ids, logprobs=logprobs)


def _top(choice: _Choice) -> dict[str, float]:
    """Listed tokens of the only position."""
    positions = choice.logprobs.top_logprobs if choice.logprobs else None
    return (positions[0] if positions else None) or {}
