"""The client of one vLLM server: samples continuations, asks yes/no questions, converts text to tokens and back.

Synchronous and safe to share between threads. It retries nothing: an error after which another attempt may succeed
is a TransientError, and the pool decides when and where to try again.
"""

import contextlib
import logging
import math
import re
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Annotated, Any

import msgspec

from weavegen.errors import ChatOnly, ModelError, NotFound, TransientError, Unfit, UsageError
from weavegen.kernel.steps import YesNo
from weavegen.kernel.template import BOS, PLAIN, Message, Template, derive, without_bos
from weavegen.pool import metering, yes_no
from weavegen.pool.chat import ChatClient
from weavegen.pool.http import Http
from weavegen.pool.served import ADDRESS_ADVICE, ServedModel, list_models, pick_model
from weavegen.pool.tokens import Continuation, Logprobs, Sampled, Text, Tokens, without_nul

logger = logging.getLogger(__name__)

MAX_STOPS = 4
"""Stop strings that vLLM 0.32 accepts."""
TEMPLATE_SECONDS = 10.0
"""Time limit for applying the chat template to a short conversation."""
SAMPLE_TEXT = "# The tick 0123456789 is over; naïve tokenizers differ\n\n        return evaluation != 'weave'"
"""A text that tells tokenizers apart."""
MAX_CACHED_TEXTS = 4096
"""Number of short texts whose tokens are cached."""
DEFAULT_CHARS_PER_TOKEN = 3.0
"""Estimated characters per token, where no server tokenises and none has counted a prompt yet."""
TOKEN_ID = re.compile("token_id:([0-9]{1,9})")
_IMPOSSIBLE = -9999.0
"""vLLM's value for a logprob of minus infinity."""
NO_MASS = "the model {model} gives no probability to yes or no: is it instruction-tuned, and does its template fit?"
OPTIONAL = (
    *("priority", "top_k", "min_p", "repetition_penalty", "repeat_penalty", "repeat_last_n", "seed", "stop_token_ids"),
    *("return_tokens_as_token_ids", "add_special_tokens"),
)
"""Parameters that a server may refuse. `capabilities` says what follows."""
CHAT_ONLY = "{url} has only the chat API: for weave and planning use vLLM or llama.cpp, which have logprobs"
UNKNOWN = re.compile("unrecognized|unknown|unexpected|extra|unsupported|not (?:supported|enabled|permitted)")
"""Words of servers that refuse a parameter, whatever its value."""
FEWER_CHOICES = re.compile(r"'n': Value must be .*?<= (\d+)|[Oo]nly one completion choice")
"""llama.cpp's refusals of so many choices: the first has the number that it allows."""
BYTES_PER_TOKEN, BYTES_PER_LISTED_TOKEN = 512, 1024
"""Bytes that an answer may have for a sampled token, and for a token whose logprob is listed, with generous room."""

Prompt = str | Tokens
"""A prompt as text, or as token ids where the server can tokenise."""


class Choice(msgspec.Struct):
    """A choice of a completion, as the server sends it."""

    index: int
    text: str = ""
    reasoning: str | None = None
    reasoning_content: str | None = None
    """Servers that separate a model's reasoning may put the whole text into one of these two."""
    finish_reason: str | None = None
    logprobs: Logprobs | None = None


Count = Annotated[int, msgspec.Meta(ge=0, lt=2**53)]


class _Details(msgspec.Struct):
    cached_tokens: Count | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    prompt_tokens_details: _Details | None = None


class _Completion(msgspec.Struct):
    choices: list[Choice]
    usage: _Usage | None = None


TokenId = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]


class _Tokenized(msgspec.Struct):
    count: TokenId
    tokens: list[TokenId]


class _Detokenized(msgspec.Struct):
    prompt: str | None = None
    text: str = ""  # so SGLang names it


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
        self._finding = threading.Lock()
        self._forget()
        self.chat = ChatClient(self.base_url, api_key, timeout=timeout)
        self.chat_only = False
        """Whether the server has a chat API and no completions, as far as is known."""
        self._refused: set[str] = set()
        """Parameters that the server does not take."""
        self._most_choices, self._listed = sys.maxsize, yes_no.TOP_TOKENS
        """Choices of a request and logprobs of a token that the server gives, as far as is known."""
        self._scores = False
        """Whether it was asked yes/no questions."""

    def _forget(self) -> None:
        """Forget what is known of the model, its tokenizer and its API: the server may serve another one by now."""
        self._served: ServedModel | None = None
        self._sides: dict[int, bool] | None = None
        self._template: Template | None = None
        self._tokenizer: tuple[int, ...] | None = None
        """None: not asked yet."""
        self._encoded = lru_cache(MAX_CACHED_TEXTS)(self._encode)
        self._has_chat = cache(lambda: self._has(f"{self.base_url}/chat/completions"))
        self.word = cache(lambda token: self.decode([token]))
        """The text of a token."""
        self._chars_per_token = DEFAULT_CHARS_PER_TOKEN
        """Characters per token: the lowest mean of a prompt so far, by the server's count."""

    @property
    def model(self) -> str:
        """The model's name. Raises Unfit if the server lacks it, or has several models and none was named."""
        return self._served_model().id

    @property
    def length(self) -> int | None:
        """Maximum tokens of a prompt and its continuation together; None if the server does not say."""
        return self._served_model().length

    @property
    def tokenizer(self) -> tuple[int, ...]:
        """Token ids of SAMPLE_TEXT, which differ between tokenizers; empty if the server lacks vLLM's /tokenize."""
        if (ids := self._tokenizer) is None:
            body = {"model": self.model, "prompt": SAMPLE_TEXT, "add_special_tokens": False}
            told: dict[str, Any] = {}
            with contextlib.suppress(ModelError, Unfit):  # a gateway may guard all that is not below /v1
                told = self._http.post(f"{self._root}/tokenize", body, dict[str, Any])
            listed = told.get("tokens") if "count" in told else None
            self._tokenizer = ids = tuple(listed) if isinstance(listed, list) else ()
            if not ids:
                logger.warning("%s has no /tokenize as vLLM has it: prompts are text; give --template", self.base_url)
        return ids

    @property
    def chats_better(self) -> bool:
        """Whether the server has a chat API, and reports no chat template for completions."""
        return not self.tokenizer and self._has_chat()

    def encode(self, text: str, *, bos: bool = False) -> Tokens:
        """The tokens of a text. `bos`: with the BOS token, unless the text begins with one. Raises ModelError."""
        special = bos and not text.startswith(BOS)
        return self._encode(text, special) if special or len(text) >= 20_000 else self._encoded(text)

    def _encode(self, text: str, special: bool = False) -> Tokens:
        body = {"model": self.model, "prompt": text, "add_special_tokens": special}
        most = BYTES_PER_TOKEN * len(text)
        return Tokens.of(self._http.post(f"{self._root}/tokenize", body, _Tokenized, most=most).tokens)

    def piece(self, text: str, *, bos: bool = False) -> Text | Tokens:
        """Convert a text to a piece of a prompt: its tokens, or the text with an estimated count."""
        if self.tokenizer:
            return self.encode(text, bos=bos)
        return Text(text, math.ceil(len(text) / self._chars_per_token))

    def template(self) -> Template:
        """Ask the server for the chat template of the model, once. PLAIN if it has none, or reports none."""
        if self._template is None:
            try:
                self._template = derive(self._render) if self.tokenizer else PLAIN
            except (ModelError, UsageError) as error:
                logger.warning("%s tells no chat template (%s): give it with --template", self.base_url, error)
                self._template = PLAIN
        return self._template

    def _render(self, messages: Sequence[Message], asks: bool) -> str:
        """Apply the chat template to messages. Raises UsageError if the server can't."""
        body = {"model": self.model, "messages": messages, "add_generation_prompt": asks}
        try:
            ids = self._http.post(f"{self._root}/tokenize", body, _Tokenized, TEMPLATE_SECONDS).tokens
        except ModelError as error:
            raise UsageError(str(error)) from None
        return self.decode(ids)

    def decode(self, tokens: Sequence[int]) -> str:
        if not tokens:
            return ""
        body = {"model": self.model, "tokens": list(tokens), "skip_special_tokens": False}
        told = self._http.post(f"{self._root}/detokenize", body, _Detokenized, most=BYTES_PER_TOKEN * len(tokens))
        return without_nul(told.text if told.prompt is None else told.prompt)

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
        options: dict[str, Any] = {"max_tokens": max_tokens, "temperature": temperature, "top_k": top_k, "seed": seed}
        options |= {"top_p": 1.0, "min_p": 0.0, "repetition_penalty": repetition_penalty}  # else the server's own apply
        # `return_token_ids` would repeat the prompt's ids in each of the n choices.
        options |= {"stop": list(stop[:MAX_STOPS]), "logprobs": 0, "return_tokens_as_token_ids": True}
        if self.tokenizer:  # vLLM leaves special tokens out of its texts, so that they end none as strings
            ends = (self.encode(word).ids for word in stop if word.strip())
            options["stop_token_ids"] = [ids[0] for ids in ends if len(ids) == 1]
        if self._served_model().meta:  # llama.cpp names the penalty otherwise, and counts what it lists
            options |= {"repeat_penalty": repetition_penalty, "repeat_last_n": self.length, "logprobs": 1}
        answer = self._complete([prompt], n, priority, BYTES_PER_TOKEN * max_tokens, **options)
        usage = answer.usage or _Usage()
        if isinstance(prompt, str) and usage.prompt_tokens:
            self._chars_per_token = min(self._chars_per_token, len(prompt) / usage.prompt_tokens)
        continuations = [continuation(choice, stop[MAX_STOPS:], self.base_url) for choice in answer.choices]
        # Where the server does not tell whose the tokens are, each text has its share of them.
        share = (usage.completion_tokens or 0) / sum(len(one.text) + 1 for one in continuations)
        for at, one in enumerate(continuations):
            tokens = one.tokens or math.ceil(share * (len(one.text) + 1)) or None
            continuations[at] = msgspec.structs.replace(one, tokens=tokens)
        details = usage.prompt_tokens_details
        cached = details.cached_tokens if details else None
        return Sampled(continuations=continuations, prompt_tokens=usage.prompt_tokens, cached_tokens=cached)

    def yes_no(self, prompts: Sequence[Prompt], *, priority: int = 0) -> list[YesNo]:
        """Return the probability mass of yes and of no as the next token of each prompt, before temperature.

        Raises ModelError if the model gives neither of them any mass, whatever the prompt.
        """
        if not prompts:
            return []
        self._scores = True
        answers = self._exact(prompts, priority)
        while answers is None:
            listed, options = self._listed, {"max_tokens": 1, "temperature": 0.0}
            try:
                most = listed * BYTES_PER_LISTED_TOKEN
                answer = self._complete(prompts, 1, priority, most, **options, logprobs=listed)
                answers = [yes_no.from_top(self._top(choice)) for choice in answer.choices]
            except ModelError as error:
                if "logprobs" not in str(error) or listed not in yes_no.FEWER:
                    raise
                self._listed = yes_no.FEWER[listed]
        if all(answer.yes <= 0 and answer.no <= 0 for answer in answers):
            raise ModelError(NO_MASS.format(model=self.model))
        return answers

    def probe(self, seconds: float) -> None:
        """Sample one token within `seconds`, with its logprobs if scores need them. Raises a request's errors."""
        self._forget()
        body = {"model": self.model, "prompt": "#", "max_tokens": 1, "temperature": 0.0, "logprobs": 1}
        try:
            if self.chat_only:
                self.chat.probe(self.model, seconds)
                return
            choices = self._ask(body, seconds=seconds).choices
        except Unfit:
            self.chat_only = False  # there may be another API by now
            raise
        except ChatOnly:
            raise
        except ModelError as error:  # a refusal of the parameters is an answer: the server is back
            logger.info("%s refuses the probe: %s", self.base_url, error)
            return
        if len(choices) != 1:
            raise TransientError(f"{self.base_url} answered {len(choices)} choices for 1", kind="malformed")
        if self._scores:
            self._top(choices[0])

    def require_completions(self) -> None:
        """Raise ChatOnly if the server has a chat API and no completions."""
        if not self._has(f"{self.base_url}/completions") and self._has(f"{self.base_url}/chat/completions"):
            raise ChatOnly(CHAT_ONLY.format(url=self.base_url))

    def close(self) -> None:
        self._http.close()
        self.chat.close()

    def _served_model(self) -> ServedModel:
        if self._served is None:
            models = list_models(self.base_url, self._http)
            try:
                self._served = pick_model(self._wanted, models, self.base_url)
            except UsageError as error:  # a server that was restarted lacks its adapters until they are loaded again
                raise Unfit(str(error)) from None
        return self._served

    def _find_sides(self) -> dict[int, bool]:
        """Find the single tokens that mean yes or no, once. Empty: use the top logprobs."""
        with self._finding:  # a hundred short requests: one thread makes them while the others wait
            if self._sides is None:
                sides: dict[int, bool] = {}
                for text in yes_no.variants() if self.tokenizer else ():
                    ids, meant = self.encode(text).ids, yes_no.side(text)
                    # Some tokenizers put a space before each text. There a bare "Yes" is the last token of '"Yes'.
                    known = len(ids) == 1 or (ids and yes_no.side(self.word(ids[-1])) is meant)
                    if known and meant is not None and len(sides) < yes_no.MAX_IDS:
                        sides.setdefault(ids[-1], meant)
                self._sides = sides
            return self._sides

    def _exact(self, prompts: Sequence[Prompt], priority: int) -> list[YesNo] | None:
        """Ask with `logprob_token_ids`. Returns None if the server can't tokenise, or ignores or rejects the parameter.

        The sampled token is listed, too: at temperature 0 it is always the likeliest one. The temperature does not
        change the logprobs, which vLLM takes before it.
        """
        sides = self._find_sides()
        if not sides:
            return None
        options = {"max_tokens": 1, "temperature": 0.0, "top_k": -1, "repetition_penalty": 1.0}
        ids = {"logprobs": 1, "logprob_token_ids": list(sides), "return_tokens_as_token_ids": True}
        most = (len(sides) + 1) * BYTES_PER_LISTED_TOKEN
        try:
            choices = self._complete(prompts, 1, priority, most, **options, **ids).choices
            exact = [yes_no.from_ids(self._top(choice), sides, choice.text) for choice in choices]
            complete = [answer for answer in exact if answer is not None]
            if len(complete) == len(exact):
                return complete
        except ModelError as error:
            if "logprob_token_ids" not in str(error):
                raise
        logger.warning("%s ignores logprob_token_ids: using the top %d tokens", self.base_url, self._listed)
        self._sides = {}
        return None

    def _complete(self, prompts: Sequence[Prompt], n: int, priority: int, most: int, **options: Any) -> _Completion:
        """Request `n` choices for every prompt, of at most `most` bytes each, and return them in order."""
        if n > (fits := self._most_choices):  # then there is one prompt
            seeds = ((at, options | {"seed": options["seed"] + at}) for at in range(0, n, fits))
            parts = [self._complete(prompts, min(fits, n - at), priority, most, **own) for at, own in seeds]
            written = sum(part.usage.completion_tokens or 0 for part in parts if part.usage)
            usage = msgspec.structs.replace(parts[-1].usage or _Usage(), completion_tokens=written)
            return _Completion([choice for part in parts for choice in part.choices], usage)
        # Token ids are JSON already. To a text, llama.cpp adds a BOS token whatever `add_special_tokens` says.
        encoded = [
            without_bos(one) or one if isinstance(one, str) else msgspec.Raw(b"[%b]" % one.json) for one in prompts
        ]
        prompt = encoded[0] if len(encoded) == 1 else encoded
        body = {"model": self.model, "prompt": prompt, "n": n, "add_special_tokens": isinstance(prompts[0], str)}
        body |= options | ({"priority": priority} if priority else {})
        try:
            answer = self._taken(body, most * len(prompts) * n)
        except (ModelError, TransientError) as error:  # older versions of llama.cpp answer 500
            allowed = FEWER_CHOICES.search(str(error))
            if allowed is None or n == 1:
                raise
            self._most_choices = max(1, min(n - 1, int(allowed[1] or 1)))
            logger.warning("%s writes at most %d choices for a request", self.base_url, self._most_choices)
            return self._complete(prompts, n, priority, most, **options)
        usage = answer.usage or _Usage()
        details = usage.prompt_tokens_details
        # Of several prompts vLLM reports the cached tokens of the last one.
        cached = details.cached_tokens if details is not None and len(prompts) == 1 else None
        read = None if usage.prompt_tokens is None else usage.prompt_tokens * n
        if usage.completion_tokens is not None:  # of several choices llama.cpp counts those of the first
            listed = sum(len(choice.logprobs.tokens) for choice in answer.choices if choice.logprobs)
            usage.completion_tokens = max(usage.completion_tokens, listed)
        metering.count(len(prompts) * n, read, cached, usage.completion_tokens)
        if sorted(choice.index for choice in answer.choices) != list(range(len(prompts) * n)):
            count = len(answer.choices)
            problem = f"answered {count} choices for {len(prompts)} x {n}, or wrong indexes"
            raise TransientError(f"{self.base_url} {problem}", kind="malformed")
        answer.choices.sort(key=lambda choice: choice.index)
        return answer

    def _taken(self, body: Mapping[str, Any], most: int) -> _Completion:
        """Request a completion without the parameters that the server refuses."""
        while True:
            asked = {name: value for name, value in body.items() if name not in self._refused}
            try:
                return self._ask(asked, most)
            except ModelError as error:
                reason = str(error).lower()
                unknown = [name for name in OPTIONAL if name in asked and name in reason]
                if not unknown or not UNKNOWN.search(reason):
                    raise
                logger.warning("%s does not take %s: %s", self.base_url, unknown[0], error)
                self._refused.add(unknown[0])

    def _ask(self, body: Mapping[str, Any], most: int = 0, seconds: float | None = None) -> _Completion:
        """Request a completion. Raises Unfit if the server no longer has the model."""
        try:
            return self._http.post(f"{self.base_url}/completions", body, _Completion, seconds, most=most)
        except NotFound as error:
            self._served = None
            if self.model != body["model"]:
                raise Unfit(f"{error}: it was restarted with another model, {self.model}") from None
            if self._has(f"{self.base_url}/chat/completions"):
                self.chat_only = True
                raise ChatOnly(CHAT_ONLY.format(url=self.base_url)) from None
            raise Unfit(f"{error} ({ADDRESS_ADVICE})") from None

    def _has(self, url: str) -> bool:
        """Whether an address takes requests. It is sent an incomplete one; some answer that with status 500."""
        try:
            self._http.send(url, {"model": self.model}, TEMPLATE_SECONDS)
        except NotFound:
            return False
        except (ModelError, TransientError) as error:
            if error.kind not in ("model", "status"):
                raise
        return True

    def _top(self, choice: Choice) -> dict[str, float]:
        """Return the logprobs listed for the only sampled token, by text."""
        if choice.logprobs is None or not (top := choice.logprobs.top):
            raise Unfit(f"{self.base_url} answered without the logprobs that were asked for: scores need them")
        return top


def continuation(choice: Choice, stop: Sequence[str], url: str = "the server") -> Continuation:
    """Convert a choice to a continuation, cut at the first of the `stop` strings. Raises TransientError."""
    text = choice.text or choice.reasoning or choice.reasoning_content or ""
    end = min((at for word in stop if (at := text.find(word)) >= 0), default=None)
    listed = choice.logprobs or Logprobs()
    ids = logprobs = None
    if listed.tokens and all(token.startswith("token_id:") for token in listed.tokens):
        ids = [int(found[1]) for token in listed.tokens if (found := TOKEN_ID.fullmatch(token))]
        logprobs = [_IMPOSSIBLE if value is None else value for value in listed.token_logprobs]
        if not len(logprobs) == len(ids) == len(listed.tokens):
            raise TransientError(f"{url} answered impossible token ids or logprobs", kind="malformed")
    if choice.finish_reason in ("abort", "error"):  # as by vLLM when it shuts down
        raise TransientError(f"{url} ended a text early: {choice.finish_reason}", kind="status")
    finish = "stop" if end is not None or choice.finish_reason is None else choice.finish_reason
    whole, tokens = without_nul(text[:end]), len(listed.tokens) or None
    return Continuation(text=whole, finish_reason=finish, token_ids=ids, logprobs=logprobs, tokens=tokens)
