"""The chat template of a model: the text around each message that the model reads. Pure.

A prompt is put together from pieces that never change, so a template is not run for each prompt: it is run once, over
messages that are known, and the texts between them are kept.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Self

import msgspec

from weavegen.errors import UsageError

Message = Mapping[str, str]
"""`role` and `content`, as in OpenAI's API."""
Render = Callable[[Sequence[Message], bool], str]
"""The text of messages. True: it ends with the beginning of the assistant's next message."""


class Template(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The texts around messages. They hold the model's special tokens as text."""

    block_open: str = ""
    """Before the blocks of a trace, which the model reads as one user message."""
    block_close: str = ""
    """After their instruction. The header of the block to be written follows on a new line."""
    first_system: str = "<|im_start|>system\n"
    """Before a system message."""
    after_system: str = "<|im_end|>\n"
    system_in_user: bool = False
    """Whether a system message is a part of the user message after it, and `after_system` the text between them."""
    first_user: str = "<|im_start|>user\n"
    """Before a user message that begins a conversation. It may hold the model's default system message."""
    user_open: str = "<|im_start|>user\n"
    user_close: str = "<|im_end|>\n"
    assistant_open: str = "<|im_start|>assistant\n"
    """Before a message that the model is to write."""
    reply_open: str = "<|im_start|>assistant\n"
    """Before a message of the assistant that it wrote earlier. Some templates differ there by a space or a mark."""
    assistant_close: str = "<|im_end|>\n"
    bos: bool = False
    """Whether the tokenizer adds its BOS token. False: it stands in the texts, if the model has one."""

    @property
    def sha256(self) -> str:
        """Hash of all texts, hexadecimal."""
        return hashlib.sha256(msgspec.json.encode(self, order="sorted")).hexdigest()

    @property
    def read_again(self) -> Self:
        """The texts around replies that the model reads as the tokens that it sampled: after `assistant_open`."""
        return msgspec.structs.replace(self, reply_open=self.assistant_open)

    @property
    def system_open(self) -> str:
        """Before a system message that does not begin the conversation."""
        return without_bos(self.first_system)

    @property
    def end(self) -> str:
        """The text that ends a message of the model."""
        return self.assistant_close.strip()

    @property
    def marks(self) -> tuple[str, ...]:
        """The special tokens that end or begin a message: no message may hold them. Tags of thoughts may be there."""
        texts = [self.assistant_close, self.user_open, self.user_close, self.assistant_open, self.system_open]
        found = dict.fromkeys(mark for text in texts for mark in _SPECIAL.findall(text) or [text.strip()])
        return tuple(mark for mark in found if mark not in ("", "<think>", "</think>"))


BOS = (
    "<s>", "<|begin_of_text|>", "<bos>", "<|startoftext|>", "<\uff5cbegin\u2581of\u2581sentence\uff5c>", "<BOS_TOKEN>",
)  # fmt: skip
"""Tokens that begin a text. A tokenizer must not add another before them."""
PLAIN = Template(bos=True)
"""For a model without a chat template: blocks stand as they are, messages as in ChatML."""

_SPECIAL = re.compile(r"<[^<>\s]+>|\[/?[A-Z_]+\]")
"""How special tokens are written: `<|im_end|>`, `</s>`, `[/INST]`."""
_PARTS = re.compile(
    r"(?ms)<tool_call>\s*\{(?:(?!<tool_call>).)*?(?:</tool_call>|\Z)|^```[^\n`]*\n(?:(?!^```\w).)*?^```(?!\w)"
    r"|<think>(?P<thought>.*?)(?:</think>|\Z)|(?P<end></think>)"
)
"""Tool calls and code blocks, whose text may hold the tags of thoughts, and thoughts."""
_SYSTEM, _USER, _REPLY, _AGAIN = (
    {"role": role, "content": f"{role}: {word}"}
    for role, word in (("system", "aaaa"), ("user", "bbbb"), ("assistant", "cccc"), ("user", "dddd"))
)
"""The messages that a template is run over."""


def without_bos(text: str) -> str:
    """The text without the BOS token that begins it."""
    return text.removeprefix(next((token for token in BOS if text.startswith(token)), ""))


def split_thoughts(text: str) -> tuple[str, list[str]]:
    """What a message says, and its thoughts, which stand in `<think>`. Tags in tool calls and code blocks are text.

    The template may have opened the first thought: then only its end is in the text.
    """
    tags = [part for part in _PARTS.finditer(text) if part.lastgroup]
    if tags and tags[0]["end"]:
        return split_thoughts(f"<think>{text}")
    said = _PARTS.sub(lambda part: "" if part.lastgroup == "thought" else part[0], text)
    return said, [part["thought"] for part in tags if not part["end"]]


def reply_after(opening: str, text: str, ended: bool = True) -> str:
    """A reply with the thought that `opening` begins, if it does: the template of its writer may have differed there.

    A text without tags that was cut off, not `ended`, may be a thought: it stays as it is.
    """
    first = next((part for part in _PARTS.finditer(text) if part.lastgroup), None)
    if first is not None and first["end"]:
        text = f"<think>\n{text}"
    if not opening.rstrip().endswith("<think>"):
        return text
    if text.lstrip().startswith("<think>"):
        return text.lstrip().removeprefix("<think>").removeprefix("\n")
    return f"\n</think>\n\n{text}" if ended or first is not None else text


def json_between_tags(value: object) -> str:
    """JSON to stand between tags. A tag in a text of it is written in another way, which means the same in JSON."""
    return json.dumps(value, ensure_ascii=False).replace("</tool_", r"<\/tool_")


def derive(render: Render) -> Template:
    """The template that `render` applies. Raises UsageError if it loses or changes messages.

    What `render` raises for a single user message is passed on; for a system message it means that the template has no
    such role.
    """
    first_user, tail = _around(render([_USER], True), _USER)
    close = _beginning(tail, _around(render([_USER], False), _USER)[1])
    _, after_reply = _around(render([_USER, _REPLY], False), _REPLY)
    talk = render([_USER, _REPLY, _AGAIN], True)
    _, reply_open = _around(talk.partition(_REPLY["content"])[0], _USER)
    if reply_open.startswith(tail) and "<|channel|>" in reply_open:
        tail = reply_open  # gpt-oss chooses a channel; in another one, thought and answer would be one text
    between, _ = _around(talk.partition(_REPLY["content"])[2], _AGAIN)
    # Phi's template adds a token after the last message, and gpt-oss's ends it with a mark of its own.
    assistant_close = _beginning(between, after_reply) or _beginning(between, close)
    user_open = between.removeprefix(assistant_close)
    try:
        begin, rest = _around(render([_SYSTEM, _USER], True), _SYSTEM)
        after_system, _ = _around(rest, _USER)
    except UsageError:
        begin, after_system = first_user, "\n\n"
    return Template(
        block_open=first_user, block_close=tail,
        first_system=begin, after_system=after_system.removesuffix(user_open),
        system_in_user=not (user_open and after_system.endswith(user_open)),
        first_user=first_user, user_open=user_open, user_close=close,
        assistant_open=tail.removeprefix(close), reply_open=reply_open.removeprefix(close),
        assistant_close=assistant_close,
    )  # fmt: skip


def _beginning(text: str, end: str) -> str:
    """The longest beginning of `end` that `text` begins with: all of it, or up to a special token's or a line's end."""
    places = [0, *(mark.end() for mark in re.finditer(rf"{_SPECIAL.pattern}|\n", end)), len(end)]
    return next(end[:place] for place in reversed(places) if text.startswith(end[:place]))


def _around(text: str, message: Message) -> tuple[str, str]:
    """The text before and after a message. Raises UsageError if the message is not in it once."""
    content = message["content"]
    before, found, after = text.partition(content)
    if not found or content in after:
        raise UsageError(f"the chat template does not repeat the message {content!r}: give another with --template")
    return before, after
