"""Conversations with people, in channels.

The box has no network. Messages go through the environment's socket to the worker; people read and write them in a
terminal (`weavegen chat`) or on Discord. For files written for weave-agent, a client also answers at PORT, as the bot's
process of weave-agent does, and a box without `discord.json` gets one.
"""

import contextlib
import json
import os
import socket
import threading
from collections import Counter
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from .window import Window

if TYPE_CHECKING:
    from weavegen.box.api import Subagent

SHOWN = 15
"""Messages in the view."""
MAX_MESSAGE_CHARS = 2_000
NAME = "Weaver"
"""The author of the agent's own messages."""
PORT = 8080
ACCOUNT = "discord.json"


class WeaveDiscordClient(Window):
    """A channel: `chat = WeaveDiscordClient(self, "", "lobby")`, later `self.tools["discord-bot-lobby"]`.

    chat.send_message("Hello") gives the new message's id, chat.reply_to_message(2, "Why?") too. Reactions:
    chat.react_to_message(2, ":)"). chat.get_messages() gives dicts, oldest first: id, author, own, content,
    timestamp, reply_to, reactions. chat.get_messages(after=3, wait=20) waits up to 20 seconds for an answer;
    chat.get_messages(before=3, limit=10) gives the ten messages before the third: what was said earlier.
    """

    def __init__(self, agent: "Subagent", token: str | None, channel_id: str | int, server_url: str | None = None):
        # `token` and `server_url` are ignored: the process that connects to Discord has its own.
        self.channel_id = str(channel_id)
        if not 0 < len(self.channel_id) <= 100 or "\x00" in self.channel_id:
            raise ValueError(f"a channel's name has 1 to 100 characters, not {len(self.channel_id)}")
        super().__init__(agent, f"WeaveDiscordClient ({self.channel_id})", f"discord-bot-{self.channel_id}")
        try:
            self.exchange("open")
        except BaseException:
            super().close()
            raise
        serve(self)

    def send_message(self, text: str) -> int:
        """Write into the channel. Gives the message's id."""
        self.check_open()
        return int(self.exchange("send", text=message(text)))

    def reply_to_message(self, message_id: int | str, text: str) -> int:
        """Answer one message. Gives the new message's id. No such message: ValueError."""
        self.check_open()
        return int(self.exchange("reply", text=message(text), about=whole(message_id)))

    def react_to_message(self, message_id: int | str, emoji: str) -> None:
        """Put an emoji under a message."""
        self.check_open()
        if not isinstance(emoji, str) or not 0 < len(emoji) <= 100:
            raise ValueError(f"a reaction is one emoji, such as \N{THUMBS UP SIGN}, not {emoji!r}")
        self.exchange("react", text=emoji, about=whole(message_id))

    add_reaction = react_to_message

    def get_messages(
        self, limit: int = 20, after: int | str = 0, wait: float = 0, before: int | str | None = None
    ) -> list[dict[str, Any]]:
        """The newest messages, my own included, oldest first; only those after and before the messages of these ids.

        At most `limit`, which is at most 100. With `wait`, up to 60, it waits so many seconds for a message of
        somebody else. `timestamp` is in ISO 8601; `reactions` are emojis, one for each reaction.
        """
        self.check_open()
        limit, wait = min(max(int(limit), 1), 100), min(max(float(wait), 0.0), 60.0)
        most = {} if before is None else {"before": max(whole(before), 1)}
        found = self.exchange("read", after=whole(after), limit=limit, wait=wait, **most)
        return [{**one, "author": NAME if one["own"] else one["author"]} for one in found]

    def render(self, agent: "Subagent | None" = None) -> str:
        """The newest messages."""
        lines = [f"Channel {self.channel_id}, the newest messages last, with their times in UTC:"]
        for entry in self.exchange("read", limit=SHOWN):
            answers = f", answering {entry['reply_to']}" if entry["reply_to"] else ""
            name = "me" if entry["own"] else entry["author"]
            lines.append(f"[{entry['id']}, {moment(entry['timestamp'])}] {name}{answers}: {entry['content']}")
            if entry["reactions"]:
                lines[-1] += f" (reactions: {counted(entry['reactions'])})"
        return "\n".join(lines if len(lines) > 1 else [*lines, "(nobody has written anything)"])

    def close(self, agent: "Subagent | None" = None) -> None:
        """Leave the channel, and close this tool and its view."""
        if self.is_open:
            self.exchange("close")
        super().close()

    def exchange(self, do: str, **more: Any) -> Any:
        import weave  # type: ignore[import-not-found]

        return weave.chat({"do": do, "channel": self.channel_id, **more})


def moment(timestamp: str) -> str:
    """Return the time to the minute, in UTC."""
    return f"{datetime.fromisoformat(timestamp).astimezone(UTC):%Y-%m-%d %H:%M}"


def counted(reactions: list[str]) -> str:
    """Return each emoji once, in order, with its number if there are several."""
    return " ".join(f"{emoji} {many}" if many > 1 else emoji for emoji, many in Counter(reactions).items())


def message(text: str) -> str:
    """Return the text as it is sent. Raises ValueError."""
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"a message is a text that says something, not {text!r}")
    if len(text) > MAX_MESSAGE_CHARS:
        raise ValueError(
            f"a message has {MAX_MESSAGE_CHARS:,} characters at most, this one {len(text):,}: send it in parts"
        )
    return text.replace("\x00", "")


def whole(message_id: int | str) -> int:
    """Return the id as a number. Raises ValueError."""
    number = int(message_id)
    if not 0 <= number <= 2**62:
        raise ValueError(f"there is no message {message_id}")
    return number


opened: list[WeaveDiscordClient] = []
"""All clients, the newest last."""


class Bot(BaseHTTPRequestHandler):
    """Answers `{"action": "get_messages"}` and the other methods of a client, for the client opened last."""

    def do_POST(self) -> None:
        try:
            asked = json.loads(self.rfile.read(min(int(self.headers.get("Content-Length", 0)), 2**20)))
            status, answer = 200, self.answer(asked)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            status, answer = 400, {"error": str(error)}
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def answer(self, asked: dict[str, Any]) -> Any:
        client = next(client for client in reversed(opened) if client.is_open)
        match asked["action"]:
            case "get_messages":
                return client.get_messages(
                    **{name: asked[name] for name in ("limit", "before", "after") if name in asked}
                )
            case "send_message":
                return {"id": client.send_message(asked["content"])}
            case "reply_to_message":
                return {"id": client.reply_to_message(asked["message_id"], asked["content"])}
            case "react_to_message":
                return client.react_to_message(asked["message_id"], asked["emoji"])
            case other:
                raise ValueError(f"there is no action {other!r}")

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


def serve(client: WeaveDiscordClient) -> None:
    """Let `client` answer at PORT of this box, unless something else has the port, or the network is the host's."""
    opened.append(client)
    if [name for _, name in socket.if_nameindex()] != ["lo"]:
        return
    with contextlib.suppress(OSError):
        threading.Thread(target=ThreadingHTTPServer(("127.0.0.1", PORT), Bot).serve_forever, daemon=True).start()


def make_account() -> None:
    """Write a stand-in for the file with the bot's token and channel, if this is a box that has none."""
    try:
        import weave  # noqa: F401 - only boxes have it
    except ImportError:
        return
    if not os.path.exists(ACCOUNT):
        with open(ACCOUNT, "w") as file:
            json.dump({"key": "stand-in", "cid": "lobby"}, file)


make_account()
