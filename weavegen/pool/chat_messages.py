"""Messages in the form of OpenAI's chat API, with its tool calls, and back. Pure: no I/O.

In a trace, the system prompt has the tools' schemas in `<tools>`, the model calls them in `<tool_call>`, and their
answers stand in `<tool_response>`. An API that has tool calls of its own gets them as such.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

from weavegen.kernel.context import role
from weavegen.kernel.template import json_between_tags, split_thoughts
from weavegen.trace.blocks import BlockType

TOOLS = re.compile(r"<tools>\n(.*?)\n</tools>", re.DOTALL)
CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
RESPONSE = re.compile(r"<tool_response>(.*?)</tool_response>", re.DOTALL)

Said = tuple[BlockType, str]
"""A message of a trace: its type and its text."""
Message = dict[str, Any]
"""A message of the API."""


def tools_of(said: Sequence[Said]) -> list[Message]:
    """The schemas of the tools that the system prompt names, one per line. Empty if it names none."""
    for type, text in said:
        if type is BlockType.SYSTEM and (found := TOOLS.search(text)):
            try:
                return [json.loads(line) for line in found[1].splitlines() if line.strip()]
            except ValueError:
                return []
    return []


def messages_of(said: Sequence[Said], *, native: bool, reasoning: str | None = None) -> list[Message]:
    """The messages of a conversation. `native`: tool calls and their answers have the API's own form, where all calls
    of a message are valid; else they stay in the text. `reasoning`: the field for thoughts; None: they stay, too.

    A message of the user after another, or after a tool's answer, continues it: strict chat templates refuse both.
    """
    messages: list[Message] = []
    pairs = iter(zip(said, [*said[1:], (BlockType.USER, "")], strict=False))
    for (type, text), (next_type, next_text) in pairs:
        if type is not BlockType.ASSISTANT:
            if role(type) == "user" and messages and messages[-1]["role"] in ("user", "tool"):
                messages[-1]["content"] += f"\n\n{text}"
            else:
                messages.append({"role": role(type), "content": text})
            continue
        rest, thoughts = split_thoughts(text)
        thought = "\n".join(thoughts)
        own = {"content": rest.strip(), reasoning: thought.strip()} if reasoning else {"content": text}
        messages.append({"role": "assistant", **own})
        calls = _calls(rest, len(messages) - 1) if native else []
        answers = RESPONSE.findall(next_text) if next_type is BlockType.TOOL else []
        if calls and len(answers) == len(calls):  # the API would refuse calls without answers
            content = text_of(CALL.sub("", rest).strip(), None if reasoning else thought, [])
            messages[-1] |= {"content": content, "tool_calls": calls}
            for call, answer in zip(calls, answers, strict=True):
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": answer})
            next(pairs)  # the answers
    return messages


def _calls(text: str, number: int) -> list[Message]:
    """The calls of a message, which is without thoughts, in the API's form; empty if one of them is invalid."""
    calls = []
    for position, written in enumerate(CALL.findall(text)):
        try:
            name, arguments = read_call(written)
        except ValueError:
            return []
        function = {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}
        # Mistral's templates want ids of nine letters and digits.
        calls.append({"id": f"{number:05d}{position:04d}", "type": "function", "function": function})
    return calls


def read_call(text: str) -> tuple[str, dict[str, Any]]:
    """The name and the arguments of a call as the model wrote it. Raises ValueError, which says what is wrong with it.

    Strings may hold line breaks, and the arguments may have the name that Llama gives them.
    """
    try:
        value = json.loads(text, strict=False)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the call is not valid JSON ({error})") from None
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise ValueError("the call has no name")
    arguments = value.get("arguments", value.get("parameters", {}))
    if not isinstance(arguments, dict):
        raise ValueError("arguments must be an object")
    return value["name"], arguments


def text_of(content: str | None, reasoning: str | None, calls: Sequence[tuple[str, Any]]) -> str:
    """A message of the API as a trace has it. `calls`: names and arguments, as JSON text or objects."""
    parts = [f"<think>{reasoning.strip()}</think>"] if reasoning and reasoning.strip() else []
    parts += [content] if content else []
    parts += [f"<tool_call>{_written(name, arguments)}</tool_call>" for name, arguments in calls]
    return "\n".join(parts)


def _written(name: str, arguments: Any) -> str:
    """A call as the text has it. Arguments that are not JSON stay as they are: the agent says what is wrong."""
    try:
        value = json.loads(arguments) if isinstance(arguments, str) and arguments else arguments or {}
        return json_between_tags({"name": name, "arguments": value})
    except (ValueError, RecursionError):
        return f'{{"name": {json.dumps(name)}, "arguments": {arguments}}}'
