"""Which models a server has."""

from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

import msgspec

from weavegen.errors import ModelError, TransientError, UsageError
from weavegen.pool.http import Http


class Served(msgspec.Struct, frozen=True):
    """A model as its server describes it."""

    id: str
    max_model_len: int | None = None
    """Tokens of a prompt and its continuation together; None if the server does not say."""
    parent: str | None = None
    """Of an adapter: the model that it changes."""


class _Models(msgspec.Struct):
    data: list[Served]


def address(text: str) -> str:
    """A base URL as it is stored. Raises UsageError, which repeats nothing that may be a secret."""
    try:
        parts = urlsplit(text.strip())
        host, port, secret = parts.hostname, parts.port, bool(parts.username or parts.password)
    except ValueError:
        raise UsageError("the address can't be read: give http://host:port/v1") from None
    if secret or "@" in text or parts.query or parts.fragment:
        raise UsageError(
            "the address holds more than an address: give http://host:port/v1, keys by WEAVEGEN_POOL_KEY"
        )
    path = parts.path.rstrip("/")
    if parts.scheme not in ("http", "https") or not host or not path.endswith("/v1") or not text.isprintable():
        raise UsageError("that is no address of a model server: give http://host:port/v1")
    place = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{place}{'' if port is None else f':{port}'}{path}"


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
    """The model to use: the one that is wanted, or the only one that is no adapter. Raises UsageError."""
    names = ", ".join(model.id for model in has) or "none"
    if wanted is None:
        own = [model for model in has if model.parent is None]
        if len(own) != 1:
            raise UsageError(f"{url} has {len(own)} models: name one of them ({names})")
        return own[0]
    found = next((model for model in has if model.id == wanted), None)
    if found is None:
        raise UsageError(f"{url} has no model {wanted!r}: it has {names}")
    return found


def check_servers(urls: Sequence[str], api_key: str | Mapping[str, str], model: str | None) -> str:
    """The name of the model that would be used. Raises UsageError, for people, if no server can be used.

    Some of several may be away; those that answer must serve one and the same model. `api_key`: of all, or by URL.
    """
    found, away = dict[str, str](), []
    for url in urls:
        http = Http(api_key if isinstance(api_key, str) else api_key[url], 10.0)
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


def check_newcomer(url: str, key: str, members: Mapping[str, str], known: Sequence[str]) -> str:
    """The name of the model of a server that is to join a pool. Raises UsageError if it does not fit in.

    `members`: API keys by URL. `known`: models that the pool is known to serve, for where none of these answers.
    """
    try:
        own = first_model(url, key)
    except (TransientError, ModelError) as error:
        raise UsageError(f"no model server answers there: {error}; start it, then add it") from None
    present = []
    for member, its_key in members.items():
        try:
            present.append(first_model(member, its_key))
        except (TransientError, ModelError):
            continue  # it is away
    if strange := [name for name in present or known if name != own]:
        raise UsageError(f"{url} serves {own}, and the pool serves {strange[0]}: a pool serves one model")
    return own


def first_model(url: str, key: str) -> str:
    """What a server serves; adapters come after the model. Raises TransientError, ModelError."""
    models = served(url, Http(key, 10.0))
    if not models:
        raise ModelError(f"{url} has no model")
    return models[0].id
