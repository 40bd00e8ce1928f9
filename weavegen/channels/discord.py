"""A client of Discord's REST API with the three calls of the bridge (engine/discord_bridge.py)."""

import urllib.parse
from typing import Any, TypeVar

import msgspec
import requests

from weavegen.errors import TransientError, WeavegenError
from weavegen.version import __version__

T = TypeVar("T")
TIMEOUT_SECONDS = 15.0
"""Time limit of a request."""
MAX_LISTED_MESSAGES = 100
"""How many messages Discord lists in one answer."""


class DiscordRefusal(WeavegenError):
    """Discord rejects a request for good. The text says why."""

    def __init__(self, status: int, text: str):
        super().__init__(f"Discord answers {status}: {text}")
        self.status = status


class RateLimited(WeavegenError):
    """Discord asks the client to wait before the next request."""

    def __init__(self, seconds: float, everywhere: bool):
        super().__init__(f"Discord asks for a pause of {seconds:g} seconds")
        self.seconds = seconds
        self.everywhere = everywhere
        """Whether the pause applies to all channels and not only to this one."""


class Author(msgspec.Struct):
    username: str
    global_name: str | None = None
    bot: bool = False


class Reference(msgspec.Struct):
    message_id: str | None = None


class Listed(msgspec.Struct):
    """A message in Discord's list."""

    id: str
    content: str
    author: Author
    message_reference: Reference | None = None
    reactions: msgspec.Raw = msgspec.Raw(b"[]")
    """Emojis with their numbers, as JSON."""


class Posted(msgspec.Struct):
    id: str


class TooMany(msgspec.Struct):
    """Discord's answer with HTTP status 429."""

    retry_after: float = 5.0
    is_global: bool = msgspec.field(default=False, name="global")


class Discord:
    """Calls Discord as the bot of the token. Raises DiscordRefusal, RateLimited and TransientError."""

    def __init__(self, url: str, token: str):
        self._url, self._token = url.rstrip("/"), token

    def post(self, channel: str, text: str, *, nonce: str, about: str | None = None) -> str:
        """Post a message, as a reply to the message `about` if one is given. Returns its id.

        A second call with the same nonce within a few minutes posts nothing and returns the first message's id.
        """
        body: dict[str, Any] = {
            "content": text,
            "nonce": nonce,
            "enforce_nonce": True,
            "allowed_mentions": {"parse": []},  # a model's text must not notify anyone
        }
        if about is not None:
            body["message_reference"] = {"message_id": about, "fail_if_not_exists": False}
        return self._decode(self._call("POST", f"/channels/{channel}/messages", body), Posted).id

    def react(self, channel: str, message: str, emoji: str) -> None:
        name = urllib.parse.quote(emoji, safe="")
        self._call("PUT", f"/channels/{channel}/messages/{message}/reactions/{name}/@me")

    def list(self, channel: str, after: int) -> "list[Listed]":
        """The messages after the id `after`, oldest first, at most MAX_LISTED_MESSAGES."""
        answer = self._call("GET", f"/channels/{channel}/messages?after={after}&limit={MAX_LISTED_MESSAGES}")
        return sorted(self._decode(answer, list[Listed]), key=lambda message: int(message.id))

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> bytes:
        headers = {"Authorization": f"Bot {self._token}", "User-Agent": f"DiscordBot (weavegen, {__version__})"}
        try:
            answer = requests.request(method, self._url + path, headers=headers, json=body, timeout=TIMEOUT_SECONDS)
        except requests.RequestException as error:
            raise TransientError(f"Discord can't be reached: {error}") from None
        if answer.status_code == 429:
            limit = self._decode(answer.content, TooMany)
            raise RateLimited(limit.retry_after, limit.is_global)
        if answer.status_code >= 500:
            raise TransientError(f"Discord answers {answer.status_code}")
        if not answer.ok:
            raise DiscordRefusal(answer.status_code, answer.text.replace(self._token, "***")[:200])
        return answer.content

    @staticmethod
    def _decode(data: bytes, type: type[T]) -> T:
        try:
            return msgspec.json.decode(data, type=type)
        except msgspec.MsgspecError as error:
            raise TransientError(f"Discord's answer can't be read: {error}") from None
