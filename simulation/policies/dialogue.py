"""Parses a chat prompt, and chooses the policy that answers it."""

import hashlib
import json
import random
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from simulation.policies import funsearch, react, research, toolsmith

OPENING = "<|im_start|>assistant\n"
_MESSAGE = re.compile(r"<\|im_start\|>(\w+)\n(.*?)<\|im_end\|>\n", re.DOTALL)
_RESPONSE = re.compile(r"<tool_response>(.*?)</tool_response>", re.DOTALL)


@dataclass(frozen=True)
class Conversation:
    """The messages that a prompt consists of."""

    messages: list[tuple[str, str]]
    """(role, text), the oldest first."""

    @cached_property
    def system(self) -> str:
        """The system prompt."""
        return next((text for role, text in self.messages if role == "system"), "")

    @cached_property
    def task(self) -> str:
        """The first user message."""
        return next((text for role, text in self.messages if role == "user"), "")

    @cached_property
    def said(self) -> list[str]:
        """The assistant's messages so far."""
        return [text for role, text in self.messages if role == "assistant"]

    @cached_property
    def responses(self) -> list[dict[str, Any]]:
        """The tools' results so far."""
        results = []
        for role, text in self.messages[2:]:
            if role == "user":
                for match in _RESPONSE.finditer(text):
                    try:
                        value = json.loads(match[1])
                    except ValueError:
                        continue
                    results.append(value if isinstance(value, dict) else {"output": value})
        return results

    def chance(self, seed: int, number: int) -> random.Random:
        """A random generator that depends on seed, candidate number and messages only."""
        digest = hashlib.blake2b(repr(self.messages).encode("utf-8", "surrogatepass"), digest_size=8)
        return random.Random(f"{seed} {number} {digest.hexdigest()}")


class Policy(Protocol):
    """A module that answers one kind of conversation."""

    def knows(self, conversation: Conversation) -> bool:
        """Whether this policy answers the conversation."""
        ...

    def write(self, conversation: Conversation, seed: int, number: int) -> str:
        """The text of candidate `number` for the next message."""
        ...


_POLICIES: tuple[Policy, ...] = (funsearch, research, toolsmith, react)
"""The first policy that knows the conversation answers. The last one knows every conversation."""


def read(prompt: str) -> Conversation | None:
    """The conversation in a prompt, or None if the prompt does not ask for the assistant's next message."""
    if not prompt.endswith(OPENING):
        return None
    return Conversation([(match[1], match[2]) for match in _MESSAGE.finditer(prompt)])


def write(conversation: Conversation, seed: int, number: int) -> str:
    """The next message of candidate `number`."""
    policy = next(policy for policy in _POLICIES if policy.knows(conversation))
    return policy.write(conversation, seed, number) + "<|im_end|>"
