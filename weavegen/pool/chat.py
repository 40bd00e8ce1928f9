"""The client of a server's chat API: for agents that converse with a server that has no completions."""

import logging
import math
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from weavegen.errors import ModelError, NotFound, TransientError, Unfit
from weavegen.kernel.steps import YesNo
from weavegen.kernel.template import split_thoughts
from weavegen.pool import chat_messages, metering, yes_no
from weavegen.pool.chat_messages import Said
from weavegen.pool.http import Http
from weavegen.pool.served import ADDRESS_ADVICE
from weavegen.pool.tokens import Continuation, Logprobs, Sampled, without_nul
from weavegen.trace.blocks import BlockType

logger = logging.getLogger(__name__)

NEW_LIMIT = "max_completion_tokens"
"""The name of `max_tokens` for a server whose refusal says so, as OpenAI's does for newer models."""
OPTIONAL = {
    "tools": r"support[^.]*\b(tool|function call)|\btool[^.]* not (supported|enabled|permitted)"
    r"|tools? (choice|param) requires|(unrecognized|unknown)[^.]*\btools\b",  # not what a tool's message lacks
    "seed": "['\"`]seed['\"`]",
    "stop": "['\"`]stop['\"`]",
    "n": "['\"`]n['\"`]|only one completion choice",  # the latter is llama.cpp's
    "temperature": "temperature.*only the default",  # a value that is out of range is the user's to change
    "max_tokens": NEW_LIMIT,
}
"""Parameters that are left out once the server has refused them, with a regular expression for its refusal."""
REASONING = ("reasoning_content", "reasoning")
"""Fields of a message for what the model thought. DeepSeek's API wants the first one back with tool calls."""
SAMPLES = 8
"""Answers to a yes/no question where the first token does not tell."""
ANSWER_TOKENS = 4_096
"""Tokens of each of them, with the model's thoughts."""
MIN_MASS = 0.1
"""Listed probability of yes and no together below which the first token begins something else, such as a thought."""


class _Function(msgspec.Struct):
    name: str
    arguments: Any = None


class _Call(msgspec.Struct):
    function: _Function


class _Part(msgspec.Struct):
    text: str = ""
    thinking: list["_Part"] = []


class _Message(msgspec.Struct):
    content: str | list[_Part] | None = None
    refusal: Any = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: Any = None
    logprobs: Any = None
    error: Any = None


class _Answer(msgspec.Struct):
    """The used fields of an answer. A field may have any type: one with a wrong type counts as missing."""

    choices: list[_Choice]
    usage: Any = None


class ChatClient:
    """The client of the chat API of one server. Safe to share between threads."""

    def __init__(self, base_url: str, api_key: str, *, timeout: float = 600.0) -> None:
        """`timeout`: seconds within which an answer must be complete. Sends nothing yet."""
        self.base_url = base_url
        self._http = Http(api_key, timeout)
        self._refused: set[str] = set()
        self._reasoning: str | None = None
        """The one of REASONING in which the server sends it, and gets it back."""
        self._kept: dict[tuple[Any, ...], Sampled] = {}
        """Messages of calls that ask one by one and have not got all yet, by model, conversation, seed and number."""

    def sample(
        self,
        model: str,
        said: Sequence[Said],
        *,
        n: int = 1,
        max_tokens: int | None = None,
        temperature: float = 1.0,
        seed: int | None = None,
        stop: Sequence[str] = (),
    ) -> Sampled:
        """Have the model write `n` messages that go on from `said`. Raises TransientError, ModelError.

        The tokens of a message are those with its reasoning; of several, each has an equal share of their sum.
        """
        options: dict[str, Any] = {"model": model, "n": n, "temperature": temperature, "seed": seed}
        options |= {"stop": list(stop), "tools": chat_messages.tools_of(said), "max_tokens": max_tokens or None}
        while True:
            left_out = [name for name, value in options.items() if name in self._refused or value in (None, [])]
            taken = {name: value for name, value in options.items() if name not in left_out}
            if max_tokens and "max_tokens" in left_out:
                taken[NEW_LIMIT] = max_tokens
            reasoning = self._reasoning
            taken["messages"] = chat_messages.messages_of(said, native="tools" in taken, reasoning=reasoning)
            try:
                if "n" not in taken:
                    return self._one_by_one(taken, [(model, *said, seed, number) for number in range(n)])
                answer = self._request(taken)
                if n > 1 and len(answer.choices) == 1:
                    self._replies(answer, 1)  # the ledger has it, too
                    raise ModelError(f"it answers one message, and 'n' is {n}")
                return self._replies(answer, n)
            except ModelError as error:
                if reasoning is None and REASONING[0] in str(error):
                    self._reasoning = REASONING[0]
                    continue
                reason = str(error).lower()
                unknown = next((name for name in OPTIONAL if name in taken and re.search(OPTIONAL[name], reason)), None)
                if unknown is None:
                    raise
                logger.warning("%s does not take %s: %s", self.base_url, unknown, error)
                self._refused.add(unknown)

    def _one_by_one(self, options: dict[str, Any], keys: Sequence[tuple[Any, ...]]) -> Sampled:
        """Request a message for each key. If one fails, those before it are there for the next attempt."""
        replies = []
        for number, key in enumerate(keys):
            own = {"seed": options["seed"] + number} if "seed" in options else {}
            replies.append(self._kept.get(key) or self._replies(self._request(options | own), 1))
            self._kept[key] = replies[-1]
        for key in (*keys, *list(self._kept)[:-1000]):  # the oldest are of calls that were given up
            self._kept.pop(key, None)
        whole = [one for reply in replies for one in reply.continuations]
        return msgspec.structs.replace(replies[-1], continuations=whole)

    def yes_no(
        self, model: str, said: Sequence[Said], questions: Sequence[str], *, seed: int = 0, room: int = ANSWER_TOKENS
    ) -> list[YesNo]:
        """The model's answers to yes/no questions about the conversation. `room`: tokens that the server has for one.

        From the logprobs of the first token, where the API gives them and the model does not think first; else from
        SAMPLES answers: the share of yes, with half an answer added on either side. Raises ModelError if no answer is
        yes or no.
        """
        texts = [f"Answer with one word, Yes or No.\n{question}" for question in questions]
        limit = max(8, min(ANSWER_TOKENS, room))
        answers = [self._judge(model, [*said, (BlockType.USER, text)], seed, limit) for text in texts]
        if answers and all(answer.yes <= 0 and answer.no <= 0 for answer in answers):
            raise ModelError(f"the model {model} answers neither yes nor no")
        return answers

    def _judge(self, model: str, said: Sequence[Said], seed: int, max_tokens: int) -> YesNo:
        if "logprobs" not in self._refused:
            limit = NEW_LIMIT if "max_tokens" in self._refused else "max_tokens"
            exact = {limit: 1, "temperature": 1.0, "logprobs": True, "top_logprobs": yes_no.TOP_TOKENS}
            try:
                messages = chat_messages.messages_of(said, native=False, reasoning=self._reasoning)
                answer = self._request({"model": model, "messages": messages} | exact)
                self._replies(answer, 1)
                top = Logprobs.read(answer.choices[0].logprobs).top
                if sum(math.exp(top[token]) for token in top if yes_no.side(token) is not None) >= MIN_MASS:
                    return yes_no.from_top(top)
                lacking = not top
            except ModelError as error:
                lacking = "logprobs" in str(error)
            if lacking:
                logger.warning("%s gives no logprobs: questions are asked %d times", self.base_url, SAMPLES)
                self._refused.add("logprobs")
        replies = self.sample(model, said, n=SAMPLES, max_tokens=max_tokens, seed=seed).continuations
        sides = [yes_no.side(split_thoughts(reply.text)[0]) for reply in replies]
        half = 0.5 if any(side is not None for side in sides) else 0.0
        yes, no = ((sides.count(side) + half) / (len(sides) + 1) for side in (True, False))
        return YesNo(yes=yes, no=no)

    def close(self) -> None:
        self._http.close()

    def probe(self, model: str, seconds: float) -> None:
        """Sample one token within `seconds`. Raises a request's errors."""
        body = {"model": model, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1}
        self._replies(self._request(body, seconds), 1)

    def _request(self, options: dict[str, Any], seconds: float | None = None) -> _Answer:
        try:
            return self._http.post(f"{self.base_url}/chat/completions", options, _Answer, seconds)
        except NotFound as error:
            if "tools" in options and re.search(OPTIONAL["tools"], str(error)):  # so OpenRouter refuses them
                raise
            raise Unfit(f"{error} ({ADDRESS_ADVICE})") from None

    def _replies(self, answer: _Answer, n: int) -> Sampled:
        """Read an answer with `n` messages, and count it in the ledger."""
        if len(answer.choices) != n:
            raise TransientError(f"{self.base_url} sent {len(answer.choices)} messages for {n}", kind="malformed")
        prompt, written = number(answer.usage, "prompt_tokens"), number(answer.usage, "completion_tokens")
        cached = number(answer.usage, "prompt_tokens_details", "cached_tokens")
        metering.count(n, prompt, cached, written)
        shares = [None if written is None else (written + place) // n for place in range(n)]
        replies = list(map(self._reply, answer.choices, shares))
        return Sampled(continuations=replies, prompt_tokens=prompt, cached_tokens=cached)

    def _reply(self, choice: _Choice, tokens: int | None) -> Continuation:
        message = choice.message
        why = choice.error or choice.finish_reason
        if choice.error or why in ("abort", "error"):  # as by OpenRouter when a provider fails
            raise TransientError(f"{self.base_url} ended a message early: {why!s:.500}", kind="status")
        calls = [(call.function.name, call.function.arguments) for call in message.tool_calls or ()]
        if isinstance(message.refusal, str) and message.refusal:
            return Continuation(text=message.refusal, finish_reason="refusal", tokens=tokens)
        parts = message.content if isinstance(message.content, list) else [_Part(message.content or "")]
        thought = "".join(one.text for part in parts for one in part.thinking)  # so Mistral's models send it
        if field := next((name for name in REASONING if getattr(message, name)), None):
            self._reasoning, thought = field, getattr(message, field)
        text = without_nul(chat_messages.text_of("".join(part.text for part in parts), thought, calls))
        finish = choice.finish_reason if isinstance(choice.finish_reason, str) else "stop"
        finish = "stop" if finish in ("tool_calls", "function_call") else finish
        return Continuation(text=text, finish_reason=finish, tokens=tokens)


def number(usage: Any, *path: str) -> int | None:
    """A count of tokens in an answer; None if it has none, or an impossible one."""
    for name in path:
        usage = usage.get(name) if isinstance(usage, dict) else None
    return usage if isinstance(usage, int) and 0 <= usage < 2**53 else None
