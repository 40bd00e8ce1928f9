"""The client of Discord's REST API: the four calls that the bridge makes (tasks/discord.py)."""

import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, TypeVar

import msgspec

from weavegen import __version__
from weavegen.errors import TransientError, WeavegenError

T = TypeVar("T")
SECONDS = 15.0
"""Time that Discord has for an answer."""
PAGE = 100
"""Messages that it lists at once."""


class Refused(WeavegenError):
    """Discord will not do it, now or later; says why."""

    def __init__(self, status: int, text: str):
        super().__init__(f"Discord answers {status}: {text}")
        self.status = status


class Slower(WeavegenError):
    """Discord asks for a pause."""

    def __init__(self, seconds: float, everywhere: bool):
        super().__init__(f"Discord asks for a pause of {seconds:g} seconds")
        self.seconds = seconds
        self.everywhere = everywhere
        """In all channels, not only in this one."""


class Author(msgspec.Struct):
    username: str
    global_name: str | None = None
    bot: bool = False


class Reference(msgspec.Struct):
    message_id: str | None = None


class Listed(msgspec.Struct):
    """A message as Discord lists it."""

    id: str
    content: str
    author: Author
    message_reference: Reference | None = None


class Posted(msgspec.Struct):
    id: str


class TooMany(msgspec.Struct):
    """Discord's answer 429."""

    retry_after: float = 5.0
    is_global: bool = msgspec.field(default=False, name="global")


class Discord:
    """Speaks to Discord as the bot that the token belongs to. Raises Refused, Slower and TransientError."""

    def __init__(self, url: str, token: str):
        self._url, self._token = url.rstrip("/"), token

    def post(self, channel: str, text: str, *, nonce: str, about: str | None = None) -> str:
        """Write a message, as a reply to the one with id `about`. Returns its id.

        Done again with the same nonce within a few minutes, it is the same message.
        """
        body: dict[str, Any] = {
            "content": text,
            "nonce": nonce,
            "enforce_nonce": True,
            "allowed_mentions": {"parse": []},  # nothing that a model writes makes anyone's phone ring
        }
        if about is not None:
            body["message_reference"] = {"message_id": about, "fail_if_not_exists": False}
        answer = self._call("POST", f"/channels/{channel}/messages", body)
        return self._decode(answer, Posted).id

    def react(self, channel: str, message: str, emoji: str) -> None:
        """Put an emoji under a message."""
        name = urllib.parse.quote(emoji, safe="")
        self._call("PUT", f"/channels/{channel}/messages/{message}/reactions/{name}/@me")

    def list(self, channel: str, after: int) -> "list[Listed]":
        """The messages after this id, oldest first, 100 at most."""
        answer = self._call("GET", f"/channels/{channel}/messages?after={after}&limit={PAGE}")
        return sorted(self._decode(answer, list[Listed]), key=lambda one: int(one.id))

    def _call(self, method: str, path: str, body: object = None) -> bytes:
        headers = {
            "Authorization": f"Bot {self._token}",
            "User-Agent": f"DiscordBot (weavegen, {__version__})",
            "Content-Type": "application/json",
        }
        data = b"" if method == "PUT" else None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=SECONDS) as answer:
                return bytes(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                text = error.read(2_000)
            if error.code == 429:
                told = self._decode(text, TooMany)
                raise Slower(told.retry_after, told.is_global) from None
            if error.code >= 500:
                raise TransientError(f"Discord answers {error.code}") from None
            said = text.decode(errors="replace").replace(self._token, "***")[:200]
            raise Refused(error.code, said) from None
        except (OSError, http.client.HTTPException) as error:
            raise TransientError(f"Discord can't be reached: {error}") from None

    @staticmethod
    def _decode(data: bytes, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(data, type=kind)
        except msgspec.MsgspecError as error:
            raise TransientError(f"Discord's answer can't be read: {error}") from None
