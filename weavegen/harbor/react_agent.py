"""The agent react for the package `harbor`: `harbor run --agent weavegen.harbor:ReactAgent --model NAME`.

It reads and writes as weavegen's own agent does (agents/react.py), in any of Harbor's environments. The model server is
at OPENAI_BASE_URL, or at the address that Harbor's options give. Each turn's token ids and logprobs are recorded.
Nothing is tokenised again: the prompt of a turn begins with the prompt and the tokens of the turn before.
"""

import asyncio
import math
from typing import Any

from harbor.agents.base import BaseAgent
from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext

from weavegen.agents import dialogue
from weavegen.agents.react import MAX_MESSAGES
from weavegen.box import calls
from weavegen.errors import ModelError, TransientError, required
from weavegen.kernel import context as texts
from weavegen.kernel import prompts
from weavegen.kernel.settings import Settings
from weavegen.kernel.template import Template
from weavegen.pool.client import ModelClient
from weavegen.pool.conversation import Piece, message
from weavegen.pool.tokens import Continuation, Text, Tokens, joined
from weavegen.trace.blocks import BlockType
from weavegen.version import __version__

TOOLS = [dialogue.Tool.of(calls.terminal)]
"""Every environment has a shell. weavegen's other tools need its own interpreter in the environment."""
TERMINAL_SECONDS = 20.0
"""Time limit of a command that names none."""
MAX_MESSAGE_TOKENS = 4096
"""Token limit of a message, because the setting `assistant.max_tokens` is 0 by default."""
RETRY_SECONDS = (1.0, 4.0, 15.0)
"""Pauses between the attempts of a request that a server did not answer."""


class ReactAgent(BaseAgent):  # type: ignore[misc] # harbor is not installed where types are checked
    def __init__(self, *args: Any, max_messages: int = MAX_MESSAGES, seed: int = 0, **kwargs: Any) -> None:
        """`max_messages`: how many the model may write. `seed`: sampling seed; each message gets the next number."""
        super().__init__(*args, **kwargs)
        self._max_messages, self._seed = max_messages, seed

    @staticmethod
    def name() -> str:
        return "weavegen-react"

    def version(self) -> str:
        return __version__

    async def setup(self, environment: BaseEnvironment) -> None:
        """Nothing is installed in the environment."""

    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        """Work on the task until the model calls no tool. Raises RolloutError if it can't go on."""
        url = required(self._execution_base_url or self._get_env("OPENAI_BASE_URL"), "set OPENAI_BASE_URL")
        model = None if self.model_name is None else self._parse_model_name(self.model_name)[1]
        client = ModelClient(url, self._get_env("OPENAI_API_KEY") or "none", model)
        conversation = Conversation(client, await asyncio.to_thread(client.template))
        system = prompts.text("react").replace("{tools}", dialogue.tools_text(TOOLS))
        await asyncio.to_thread(conversation.add, BlockType.SYSTEM, system)
        await asyncio.to_thread(conversation.add, BlockType.USER, instruction)
        for number in range(self._max_messages):
            written = await self._write(conversation, self._seed + number)
            conversation.report(context)
            if not (found := dialogue.calls_in(written.text, TOOLS)):
                return
            answers = [dialogue.response(await answer(environment, call)) for call in found]
            await asyncio.to_thread(conversation.add, BlockType.TOOL, "\n".join(answers))

    async def _write(self, conversation: "Conversation", seed: int) -> Continuation:
        """Have the model write a message. Transient errors are retried."""
        for pause in RETRY_SECONDS:
            try:
                return await asyncio.to_thread(conversation.write, seed)
            except TransientError:
                await asyncio.sleep(pause)
        return await asyncio.to_thread(conversation.write, seed)


class Conversation:
    """A conversation as token ids."""

    def __init__(self, client: ModelClient, template: Template) -> None:
        self.client, self.template = client, template
        self.tokens = Tokens(0, b"")
        self.last: BlockType | None = None
        """Type of the last message."""
        self.turns: list[tuple[list[int], Continuation]] = []
        """The prompt and the message of each turn of the model."""

    def add(self, type: BlockType, text: str, sampled: list[int] | None = None) -> None:
        """Add a message; of one that the model wrote, `sampled` are its tokens. Raises TransientError, ModelError."""
        self.tokens = _join(self.tokens, message(Piece(text, type, sampled), self.template, self.client, self.last))
        self.last = type

    def write(self, seed: int) -> Continuation:
        """Sample the next message and add it. Raises TransientError, ModelError."""
        client, template, settings = self.client, self.template, Settings().of(BlockType.ASSISTANT)
        begun = _join(self.tokens, client.encode(texts.opening(BlockType.ASSISTANT, template, self.last)))
        room = (client.length or math.inf) - begun.count
        if room < 1:
            raise ModelError(f"the conversation takes {begun.count} of the model's {client.length} tokens")
        stops = (template.end, texts.LEFT_OUT) if template.end else (texts.LEFT_OUT,)
        limit = int(min(room, settings.max_tokens or MAX_MESSAGE_TOKENS))
        sampled = client.sample(
            begun,
            n=1,
            max_tokens=limit,
            temperature=settings.temperature,
            top_k=settings.top_k,
            repetition_penalty=settings.repetition_penalty,
            seed=seed,
            stop=stops,
        )
        [written] = sampled.continuations
        self.turns.append((begun.ids, written))
        self.add(BlockType.ASSISTANT, written.text, written.token_ids)
        return written

    def report(self, context: AgentContext) -> None:
        """Record the turns for Harbor."""
        context.n_input_tokens = sum(len(prompt) for prompt, _ in self.turns)
        context.n_output_tokens = sum(message.tokens or 0 for _, message in self.turns)
        if all(message.token_ids is not None for _, message in self.turns):
            context.rollout_details = [
                {
                    "prompt_token_ids": [prompt for prompt, _ in self.turns],
                    "completion_token_ids": [message.token_ids for _, message in self.turns],
                    "logprobs": [message.logprobs for _, message in self.turns],
                }
            ]


def _join(*parts: Text | Tokens) -> Tokens:
    whole = joined(parts)
    if not isinstance(whole, Tokens):
        raise ModelError("the model's server can't tokenise: exact tokens need its route /tokenize")
    return whole


async def answer(environment: BaseEnvironment, call: dialogue.Call) -> dict[str, Any]:
    """Run the command of a tool call in an environment. Returns the answer for the model."""
    if call.error is not None:
        return dialogue.failed(call.error)
    seconds = math.ceil(call.arguments.get("timeout", TERMINAL_SECONDS))
    try:
        ran = await environment.exec(call.arguments["command"], timeout_sec=seconds)
    except RuntimeError as error:  # of an environment whose command takes too long
        return dialogue.failed(str(error))
    code = f"\n(exit code {ran.return_code})" if ran.return_code else ""
    return {"success": True, "output": calls.shorten((ran.stdout or "") + (ran.stderr or "") + code)}
