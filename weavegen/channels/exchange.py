"""What message tools want of channels, and how they are answered. Values only; store/messages.py keeps them."""

from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec

NO_NUL = r"^[^\x00]*$"
"""What Postgres can hold, as text and as a number."""
Whole = Annotated[int, msgspec.Meta(ge=0, le=2**62)]


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """What a message tool wants of a channel."""

    number: Whole
    turn: Whole
    """Which exchange of its step this is, from 1. One that is done again is answered as it was the first time."""
    do: Literal["open", "close", "send", "reply", "react", "read"]
    """send and reply are answered by the new message's id, read by a list as of `store.messages.read`."""
    channel: Annotated[str, msgspec.Meta(min_length=1, max_length=100, pattern=NO_NUL)]
    text: Annotated[str, msgspec.Meta(max_length=2_000, pattern=NO_NUL)] = ""
    """The message, or the emoji."""
    about: Whole = 0
    """Id of the message that is answered or reacted to."""
    after: Whole = 0
    """Only messages after this one are read."""
    limit: Annotated[int, msgspec.Meta(ge=1, le=100)] = 20
    """The newest so many are read."""
    wait: Annotated[float, msgspec.Meta(ge=0, le=60)] = 0.0
    """Seconds to wait until somebody else has written one of them."""


Chat = Callable[[Exchange], dict[str, Any]]
"""Does an exchange: gives {"values": answer} or {"error": why not}."""


def alone() -> Chat:
    """Channels that nobody else is in."""
    channels: dict[str, list[dict[str, Any]]] = {}

    def chat(wish: Exchange) -> dict[str, Any]:
        said = channels.setdefault(wish.channel, [])
        if wish.do == "read":
            return {"values": said[wish.after :][-wish.limit :]}
        if wish.do not in ("send", "reply"):
            return {"values": None}
        mine = {"id": len(said) + 1, "author": "agent", "own": True, "content": wish.text, "timestamp": ""}
        said.append({**mine, "reply_to": wish.about or None, "reactions": []})
        return {"values": len(said)}

    return chat
