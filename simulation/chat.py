"""OpenAI's chat API, for servers without completions: messages, tools and tool calls in the API's own form."""

import json
import secrets
import time
from typing import Any

import msgspec

from weavegen.kernel.template import split_thoughts
from weavegen.pool import chat_messages
from weavegen_nano.protocol import BadRequest, Choice, CompletionRequest, CompletionResponse

ROLES = ("system", "user", "assistant", "tool")
END = "<|im_end|>\n"


class Function(msgspec.Struct):
    name: str
    arguments: str = "{}"


class ToolCall(msgspec.Struct):
    id: str
    function: Function
    type: str = "function"


class Message(msgspec.Struct):
    role: str
    content: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None


class ChatRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `/v1/chat/completions`. Like OpenAI's API, the server refuses other fields."""

    messages: list[Message]
    model: str | None = None
    n: int = 1
    max_tokens: int | None = None
    temperature: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    tools: list[dict[str, Any]] | None = None
    logprobs: bool = False
    top_logprobs: int = 0


def completion_request(request: ChatRequest) -> CompletionRequest:
    """The same request for completions, with the messages in ChatML. Raises BadRequest."""
    texts, waiting = [], list[str]()
    for message in request.messages:
        if message.role not in ROLES:
            raise BadRequest(f"Invalid role: {message.role}", param="messages")
        if message.role == "tool" and message.tool_call_id not in waiting:
            text = "messages with role 'tool' must be a response to a preceding message with 'tool_calls'"
            raise BadRequest(text, param="messages")
        if message.role == "tool":
            waiting.remove(message.tool_call_id or "")
        elif waiting:
            raise BadRequest("tool_calls must be followed by tool messages", param="messages")
        waiting += [call.id for call in message.tool_calls or ()]
        texts.append(spoken(message))
    told = joined(request.messages, texts)
    judges = request.logprobs and request.max_tokens == 1  # then the text ends with the question
    return CompletionRequest(
        prompt=f"<s>{told.removesuffix(END)}" if judges else f"<s>{told}<|im_start|>assistant\n",
        logprobs=request.top_logprobs if request.logprobs else None,
        add_special_tokens=False,
        model=request.model,
        n=request.n,
        max_tokens=4096 if request.max_tokens is None else request.max_tokens,
        temperature=request.temperature,
        seed=request.seed,
        stop=["<|im_end|>", *([request.stop] if isinstance(request.stop, str) else request.stop or [])][:4],
    )


def spoken(message: Message) -> str:
    """The text of a message, with its tool calls."""
    calls = [(call.function.name, call.function.arguments) for call in message.tool_calls or ()]
    if message.role == "tool":  # the user's message may follow the answer, which is JSON in one line
        answer, gap, more = (message.content or "").partition("\n\n")
        return f"<tool_response>{answer}</tool_response>{gap}{more}"
    return chat_messages.text_of(message.content, None, calls)


def joined(messages: list[Message], texts: list[str]) -> str:
    """All messages in ChatML. The answers of several tools in a row are one message of the user."""
    parts: list[tuple[str, str]] = []
    for message, text in zip(messages, texts, strict=True):
        role = "user" if message.role == "tool" else message.role
        if message.role == "tool" and parts and parts[-1][1].startswith("<tool_response>"):
            parts[-1] = (role, f"{parts[-1][1]}\n{text}")
        else:
            parts.append((role, text))
    return "".join(f"<|im_start|>{role}\n{text}{END}" for role, text in parts)


def chat_response(request: ChatRequest, response: CompletionResponse, server: str) -> dict[str, Any]:
    """The answer in the form of the chat API. Tool calls are the API's own if the request has tools."""
    return {
        "id": f"chatcmpl-{secrets.token_hex(8)}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": response.model,
        "system_fingerprint": server,
        "choices": [choice_of(request, choice) for choice in response.choices],
        "usage": msgspec.to_builtins(response.usage),
    }


def choice_of(request: ChatRequest, choice: Choice) -> dict[str, Any]:
    """A choice with its message."""
    calls: list[dict[str, Any]] = []
    for written in chat_messages.CALL.findall(split_thoughts(choice.text)[0]) if request.tools else ():
        try:
            call = json.loads(written)
        except ValueError:
            calls = []
            break
        function = {"name": str(call.get("name")), "arguments": json.dumps(call.get("arguments", {}))}
        calls.append({"id": f"call_{secrets.token_hex(8)}", "type": "function", "function": function})
    message: dict[str, Any] = {"role": "assistant", "content": choice.text, "refusal": None}
    if calls:
        message |= {"content": chat_messages.CALL.sub("", choice.text).strip() or None, "tool_calls": calls}
    finish = "tool_calls" if calls else choice.finish_reason
    return {"index": choice.index, "message": message, "logprobs": logprobs_of(choice), "finish_reason": finish}


def logprobs_of(choice: Choice) -> dict[str, Any] | None:
    """The logprobs in the form of the chat API; None if none were asked for."""
    if choice.logprobs is None:
        return None
    listed = choice.logprobs
    content = [
        {
            "token": token,
            "logprob": logprob,
            "bytes": None,
            "top_logprobs": [{"token": other, "logprob": value, "bytes": None} for other, value in top.items()],
        }
        for token, logprob, top in zip(listed.tokens, listed.token_logprobs, listed.top_logprobs, strict=True)
    ]
    return {"content": content, "refusal": None}


def error_of(error: Exception) -> BadRequest:
    """The refusal of a body that is not a request. Unknown fields are named as OpenAI's API names them."""
    text = str(error)
    if "unknown field" in text:
        name = text.partition("`")[2].partition("`")[0]
        return BadRequest(f"Unrecognized request argument supplied: {name}", param=name)
    return BadRequest(f"1 validation error: {text}")


def read(body: bytes) -> ChatRequest:
    """The request in a body. Raises BadRequest."""
    try:
        request = msgspec.json.decode(body, type=ChatRequest)
    except msgspec.MsgspecError as error:
        raise error_of(error) from None
    if request.n > 128 or request.n < 1:
        raise BadRequest(f"n must be from 1 to 128, got {request.n}", param="n")
    return request
