"""The client of a server's chat API: for agents that converse with a server that has no completions."""

import logging
from collections.abc import Sequence
from typing import Any

import msgspec

from weavegen.errors import ModelError, NotFound, TransientError, Unfit
from weavegen.kernel.steps import YesNo
from weavegen.kernel.template import THOUGHT
from weavegen.pool import chat_messages, metering, yes_no
from weavegen.pool.chat_messages import Said
from weavegen.pool.http import Http
from weavegen.pool.served import ADDRESS_ADVICE
from weavegen.pool.tokens import Continuation, Logprobs, Sampled, without_nul
from weavegen.trace.blocks import BlockType

logger = logging.getLogger(__name__)

OPTIONAL = ("tools", "seed", "stop", "n", "temperature")
"""Parameters that are left out once the server has refused them. Without `n`, each message is one request."""
NEW_LIMIT = "max_completion_tokens"
"""The name of `max_tokens` for a server whose refusal says so, as OpenAI's does for newer models."""
SAMPLES = 8
"""Answers to a yes/no question where the first token does not tell."""
ANSWER_TOKENS = 4_096
"""Tokens of each of them, with the model's thoughts."""
MIN_MASS = 0.1
"""Probability of yes and no together below which the first token begins something else, such as a thought."""


class _Function(msgspec.Struct):
    name: str
    arguments: str | None = None


class _Call(msgspec.Struct):
    type: str = "function"
    function: _Function | None = None


class _Message(msgspec.Struct):
    content: str | None = None
    refusal: Any = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: Any = None
    logprobs: Any = None


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
        self._limit = "max_tokens"

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
        tools = chat_messages.tools_of(said)
        options: dict[str, Any] = {"model": model, "temperature": temperature, "n": n}
        more = {"max_tokens": max_tokens or None, "seed": seed, "stop": list(stop) or None, "tools": tools or None}
        options |= {name: value for name, value in more.items() if value is not None}
        while True:
            taken = {name: value for name, value in options.items() if name not in self._refused}
            native = "tools" in taken
            taken["messages"] = chat_messages.with_calls(said) if native else chat_messages.plain(said)
            try:
                if "n" not in taken:
                    seeds = [{"seed": taken["seed"] + number} if "seed" in taken else {} for number in range(n)]
                    return self._replies([self._request(taken | own) for own in seeds], 1)
                answer = self._request(taken)
                if n > 1 and len(answer.choices) == 1:
                    self._replies([answer], 1)  # the ledger has it, too
                    raise ModelError(f"it answers one message, and 'n' is {n}")
                return self._replies([answer], n)
            except ModelError as error:
                reason = str(error).lower()
                unknown = next((name for name in OPTIONAL if name in taken and _named(name, reason)), None)
                if unknown is None:
                    raise
                logger.warning("%s does not take %s: %s", self.base_url, unknown, error)
                self._refused.add(unknown)

    def yes_no(self, model: str, said: Sequence[Said], questions: Sequence[str], *, seed: int = 0) -> list[YesNo]:
        """The model's answers to yes/no questions about the conversation.

        From the logprobs of the first token, where the API gives them and the model does not think first; else from
        SAMPLES answers: the share of yes, with half an answer added on either side. Raises ModelError if no answer is
        yes or no.
        """
        answers = [self._judge(model, asked(said, question), seed) for question in questions]
        if answers and all(answer.yes <= 0 and answer.no <= 0 for answer in answers):
            raise ModelError(f"the model {model} answers neither yes nor no")
        return answers

    def _judge(self, model: str, said: Sequence[Said], seed: int) -> YesNo:
        if "logprobs" not in self._refused:
            exact = {"max_tokens": 1, "temperature": 1.0, "logprobs": True, "top_logprobs": yes_no.TOP_TOKENS}
            try:
                answer = self._request({"model": model, "messages": chat_messages.plain(said)} | exact)
                self._replies([answer], 1)
                top = Logprobs.read(answer.choices[0].logprobs).top
                judged, lacking = yes_no.from_top(top), not top
                if judged.yes + judged.no >= MIN_MASS:
                    return judged
            except ModelError as error:
                lacking = "logprobs" in str(error)
            if lacking:
                logger.warning("%s gives no logprobs: questions are asked %d times", self.base_url, SAMPLES)
                self._refused.add("logprobs")
        replies = self.sample(model, said, n=SAMPLES, max_tokens=ANSWER_TOKENS, seed=seed).continuations
        sides = [yes_no.side(THOUGHT.sub("", reply.text)) for reply in replies]
        yes, no = sides.count(True), sides.count(False)
        if yes + no == 0:
            return YesNo(yes=0.0, no=0.0)
        return YesNo(yes=(yes + 0.5) / (len(sides) + 1), no=(no + 0.5) / (len(sides) + 1))

    def close(self) -> None:
        self._http.close()

    def probe(self, model: str, seconds: float) -> None:
        """Sample one token within `seconds`. Raises a request's errors."""
        body = {"model": model, "messages": chat_messages.plain([(BlockType.USER, "Hello")]), "max_tokens": 1}
        self._replies([self._request(body, seconds)], 1)

    def _request(self, options: dict[str, Any], seconds: float | None = None) -> _Answer:
        limit = self._limit
        body = {limit if name == "max_tokens" else name: value for name, value in options.items()}
        try:
            return self._http.post(f"{self.base_url}/chat/completions", body, _Answer, seconds)
        except NotFound as error:
            raise Unfit(f"{error} ({ADDRESS_ADVICE})") from None
        except ModelError as error:
            if limit not in body or limit == NEW_LIMIT or NEW_LIMIT not in str(error):
                raise
            self._limit = NEW_LIMIT
            return self._request(options, seconds)

    def _replies(self, answers: Sequence[_Answer], n: int) -> Sampled:
        """Read answers with `n` messages each, and count them in the ledger."""
        replies: list[Continuation] = []
        prompt: int | None = None
        cached: int | None = None
        for answer in answers:
            if len(answer.choices) != n:
                problem = f"{self.base_url} answered {len(answer.choices)} messages for {n}"
                raise TransientError(problem, kind="malformed")
            prompt, written = number(answer.usage, "prompt_tokens"), number(answer.usage, "completion_tokens")
            cached = number(answer.usage, "prompt_tokens_details", "cached_tokens")
            metering.count(n, prompt, cached, written)
            shares = [None if written is None else (written + place) // n for place in range(n)]
            replies += map(self._reply, answer.choices, shares)
        return Sampled(continuations=replies, prompt_tokens=prompt, cached_tokens=cached)

    def _reply(self, choice: _Choice, tokens: int | None) -> Continuation:
        """Read a message. Raises TransientError if it has a call of a function without the function."""
        message, calls = choice.message, []
        for call in message.tool_calls or ():
            if call.type == "function":
                if call.function is None:
                    raise TransientError(f"{self.base_url} sent a call without its function", kind="malformed")
                calls.append((call.function.name, call.function.arguments or "{}"))
        if isinstance(message.refusal, str) and message.refusal:
            return Continuation(text=message.refusal, finish_reason="refusal", tokens=tokens)
        reasoning = message.reasoning_content or message.reasoning
        text = without_nul(chat_messages.text_of(message.content, reasoning, calls))
        finish = choice.finish_reason if isinstance(choice.finish_reason, str) else "stop"
        finish = "stop" if finish in ("tool_calls", "function_call") else finish
        return Continuation(text=text, finish_reason=finish, tokens=tokens)


def number(usage: Any, *path: str) -> int | None:
    """A count of tokens in an answer; None if it has none, or an impossible one."""
    for name in path:
        usage = usage.get(name) if isinstance(usage, dict) else None
    return usage if isinstance(usage, int) and 0 <= usage < 2**53 else None


def asked(said: Sequence[Said], question: str) -> list[Said]:
    """A conversation with a yes/no question at its end."""
    return [*said, (BlockType.USER, f"Answer with one word, Yes or No.\n{question}")]


def _named(name: str, reason: str) -> bool:
    """Whether an error is about a parameter. The names `n` and `stop` are also words."""
    if name == "n" and "only one completion choice" in reason:  # llama.cpp's refusal does not name it
        return True
    if name == "temperature":  # a value that is out of range is the user's to change
        return name in reason and "only the default" in reason
    # vLLM refuses tools as `"auto" tool choice`.
    return name.rstrip("s") in reason if len(name) > 4 else any(f"{quote}{name}{quote}" in reason for quote in "'\"`")
