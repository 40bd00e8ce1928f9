"""Which models a server has. By the standard library: the openai library takes most of a second to import."""

import http.client
import urllib.error
import urllib.request
from collections.abc import Sequence
from urllib.parse import urlsplit

import msgspec

from weavegen.errors import ModelError, TransientError, UsageError

BUSY = frozenset({408, 425, 429})
"""Statuses below 500 after which another attempt may succeed."""


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model]


def served(url: str, api_key: str, seconds: float = 10.0) -> list[str]:
    """Names of the models at a base URL that ends in `/v1`. Raises TransientError, ModelError."""
    if urlsplit(url).scheme not in ("http", "https"):
        raise ModelError(f"{url} is no http address")
    request = urllib.request.Request(f"{url.rstrip('/')}/models", headers={"Authorization": f"Bearer {api_key}"})
    try:
        with urllib.request.urlopen(request, timeout=seconds) as answer:
            return [model.id for model in msgspec.json.decode(answer.read(), type=_Models).data]
    except urllib.error.HTTPError as error:
        with error:
            said = f"{url} answered {error.code}: {error.read(2_000).decode(errors='replace')}"
        if error.code in BUSY or error.code >= 500:
            raise TransientError(said) from None
        raise ModelError(said) from None
    except (OSError, http.client.HTTPException) as error:
        raise TransientError(f"no connection to {url}: {error}") from None
    except msgspec.MsgspecError as error:
        raise TransientError(f"{url} answered what can't be read: {error}") from None


def pick(wanted: str | None, has: Sequence[str], url: str) -> str:
    """The model to use: the one that is wanted, or the only one. Raises UsageError where that is none."""
    names = ", ".join(has) or "none"
    if wanted is not None and wanted not in has:
        raise UsageError(f"{url} has no model {wanted!r}: it has {names}")
    if wanted is None and len(has) != 1:
        raise UsageError(f"{url} has {len(has)} models: name one of them ({names})")
    return has[0] if wanted is None else wanted


def check_server(url: str, api_key: str, model: str | None) -> str:
    """The name of the model that would be used. UsageError, for people, if the server can't be used."""
    try:
        return pick(model, served(url, api_key), url)
    except (TransientError, ModelError) as error:
        raise UsageError(
            f"no model server to use at {url} ({error}): start one (`vllm serve MODEL`, or `weavegen sim` "
            "for a simulation) or set OPENAI_BASE_URL to where one is"
        ) from None
