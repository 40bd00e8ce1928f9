"""Which models a server has."""

from collections.abc import Sequence
from urllib.parse import urlsplit

import msgspec

from weavegen.errors import ModelError, TransientError, UsageError
from weavegen.pool.http import Http


class Served(msgspec.Struct, frozen=True):
    """A model as its server describes it."""

    id: str
    max_model_len: int | None = None
    """Tokens of a prompt and its continuation together; None if the server does not say."""


class _Models(msgspec.Struct):
    data: list[Served]


def served(url: str, http: Http, seconds: float = 10.0) -> list[Served]:
    """The models at a base URL that ends in `/v1`. Raises TransientError, ModelError."""
    if urlsplit(url).scheme not in ("http", "https"):
        raise ModelError(f"{url} is no http address")
    answer = http.get(f"{url.rstrip('/')}/models", seconds)
    try:
        return msgspec.json.decode(answer, type=_Models).data
    except msgspec.MsgspecError as error:
        raise TransientError(f"{url} answered what can't be read: {error}") from None


def pick(wanted: str | None, has: Sequence[Served], url: str) -> Served:
    """The model to use: the one that is wanted, or the only one. Raises UsageError where that is none."""
    names = ", ".join(model.id for model in has) or "none"
    if wanted is None:
        if len(has) != 1:
            raise UsageError(f"{url} has {len(has)} models: name one of them ({names})")
        return has[0]
    found = next((model for model in has if model.id == wanted), None)
    if found is None:
        raise UsageError(f"{url} has no model {wanted!r}: it has {names}")
    return found


def check_servers(urls: Sequence[str], api_key: str, model: str | None) -> str:
    """The name of the model that would be used. Raises UsageError, for people, if no server can be used.

    Some of several may be away; those that answer must serve one and the same model.
    """
    http, found, away = Http(api_key, 10.0), dict[str, str](), []
    for url in urls:
        try:
            found[url] = pick(model, served(url, http), url).id
        except (TransientError, ModelError) as error:
            away.append(f"{url} ({error})")
    if not found:
        raise UsageError(
            f"no model server to use at {', '.join(away)}: start one (`vllm serve MODEL`, or `weavegen sim` "
            "for a simulation) or set OPENAI_BASE_URL to where one is"
        )
    if len(set(found.values())) > 1:
        serve = ", ".join(f"{name} at {url}" for url, name in found.items())
        raise UsageError(f"the servers of a pool must serve one model, and these serve several: {serve}")
    return next(iter(found.values()))
