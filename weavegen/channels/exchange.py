"""The requests of message tools to channels, as values. store/messages.py carries them out."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import msgspec

NO_NUL = r"^[^\x00]*$"
"""Postgres can't store a NUL in a text."""
WholeNumber = Annotated[int, msgspec.Meta(ge=0, le=2**62)]


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """A request of a message tool to a channel."""

    number: WholeNumber
    turn: WholeNumber
    """The exchange's number in its step, from 1. A repeated exchange gets the first answer again."""
    do: Literal["open", "close", "send", "reply", "react", "read"]
    """send and reply return the new message's id; read returns a list as `store.messages.read` does."""
    channel: Annotated[str, msgspec.Meta(min_length=1, max_length=100, pattern=NO_NUL)]
    text: Annotated[str, msgspec.Meta(max_length=2_000, pattern=NO_NUL)] = ""
    """The message, or the emoji."""
    about: WholeNumber = 0
    """Id of the message that a reply or a reaction is for."""
    after: WholeNumber = 0
    """read: only messages after this id."""
    before: WholeNumber = 0
    """read: only messages before this id; 0: up to the newest."""
    limit: Annotated[int, msgspec.Meta(ge=1, le=100)] = 20
    """read: at most this many messages, the newest ones."""
    wait: Annotated[float, msgspec.Meta(ge=0, le=60)] = 0.0
    """read: how many seconds to wait for a message from somebody else."""


Chat = Callable[[Exchange], dict[str, Any]]
"""Carries out an exchange. Returns {"values": answer} or {"error": reason}."""


def private_channels() -> Chat:
    """Channels in memory that nobody else reads or writes."""
    channels: dict[str, list[dict[str, Any]]] = {}

    def chat(exchange: Exchange) -> dict[str, Any]:
        messages = channels.setdefault(exchange.channel, [])
        if exchange.do == "read":
            end = exchange.before - 1 if exchange.before else None
            return {"values": messages[exchange.after : end][-exchange.limit :]}
        if exchange.do == "react" and 0 < exchange.about <= len(messages):
            messages[exchange.about - 1]["reactions"].append(exchange.text)
        if exchange.do not in ("send", "reply"):
            return {"values": None}
        now = datetime.now(UTC).isoformat(timespec="seconds")
        message = {"id": len(messages) + 1, "author": "agent", "own": True, "content": exchange.text, "timestamp": now}
        messages.append({**message, "reply_to": exchange.about or None, "reactions": []})
        return {"values": len(messages)}

    return chat
