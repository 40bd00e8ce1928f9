"""Asks servers for their models, and checks that a job's model is among them."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

import msgspec

from weavegen.errors import ModelError, NotFound, TransientError, Unfit, UsageError, required
from weavegen.pool.http import Http, decoded

ADDRESS_ADVICE = "check the address of the server, which ends in /v1"


class ServedModel(msgspec.Struct, frozen=True):
    """A model as listed by its server."""

    id: str
    max_model_len: int | None = None
    meta: Any = None
    """In llama.cpp's list: facts of the model, with the context size `n_ctx`."""
    parent: str | None = None
    """For an adapter: the model that it adapts."""
    tasks: tuple[str, ...] = msgspec.field(default=(), name="weavegen_tasks")
    """The only bootstraps that a small model was trained on; empty: unknown, as on other servers."""

    @property
    def length(self) -> int | None:
        """Maximum tokens of a prompt and its continuation together; None if the server does not say."""
        told = self.max_model_len or (self.meta.get("n_ctx") if isinstance(self.meta, dict) else None)
        return told if isinstance(told, int) else None


class _Models(msgspec.Struct):
    data: list[ServedModel]


def address(text: str) -> str:
    """Normalise a base URL. Raises UsageError, whose message repeats nothing that may be a secret."""
    try:
        parts = urlsplit(text.strip())
        host, port, secret = parts.hostname, parts.port, bool(parts.username or parts.password)
    except ValueError:
        raise UsageError("the address can't be read: give http://host:port/v1") from None
    if secret or "@" in text or parts.query or parts.fragment:
        raise UsageError("the address has more parts than allowed: give http://host:port/v1, keys in WEAVEGEN_POOL_KEY")
    path = parts.path.rstrip("/")
    if parts.scheme not in ("http", "https") or not host or not path.endswith("/v1") or not text.isprintable():
        raise UsageError("this is not the address of a model server: give http://host:port/v1")
    host = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{host}{'' if port is None else f':{port}'}{path}"


def list_models(url: str, http: Http, seconds: float = 10.0) -> list[ServedModel]:
    """List the models at a base URL that ends in `/v1`. Raises TransientError, ModelError."""
    if urlsplit(url).scheme not in ("http", "https"):
        raise ModelError(f"{url} is not an http address")
    try:
        return decoded(url, http.get(f"{url.rstrip('/')}/models", seconds), _Models).data
    except NotFound as error:
        raise Unfit(f"{error} ({ADDRESS_ADVICE})") from None


def models_at(url: str, key: str, seconds: float = 10.0) -> list[ServedModel]:
    """As `list_models`, over a connection of its own, which is closed."""
    with closing(Http(key, seconds)) as http:
        return list_models(url, http, seconds)


def pick_model(name: str | None, models: Sequence[ServedModel], url: str) -> ServedModel:
    """Return the model with this name, or if None the only model that is not an adapter. Raises UsageError."""
    names = ", ".join(model.id for model in models) or "none"
    if name is None:
        base = [model for model in models if model.parent is None]
        if len(base) != 1:
            raise UsageError(f"{url} has {len(base)} models: name one of them ({names})")
        return base[0]
    found = next((model for model in models if model.id == name), None)
    return required(found, f"{url} has no model {name!r}: it has {names}")


def serving(keys: Mapping[str, str], model: str | None) -> dict[str, ServedModel]:
    """Return the servers that serve a model, as they list it, by URL. Raises UsageError if no server can be used.

    Some servers may be unreachable, and with `model` some may serve others. `keys`: API keys by URL.
    """
    found, away, others = dict[str, ServedModel](), [], []
    for url, key in keys.items():
        try:
            found[url] = pick_model(model, models_at(url, key), url)
        except (TransientError, ModelError) as error:
            away.append(f"{url} ({error})")
        except UsageError as error:
            others.append(error)
    if not found and others:
        raise others[0]
    if not found:
        raise UsageError(
            f"no usable model server at {', '.join(away)}: start one (`vllm serve MODEL`, or `weavegen sim` "
            "for a simulation) or set OPENAI_BASE_URL to one that runs"
        )
    if len({one.id for one in found.values()}) > 1:
        serve = ", ".join(f"{one.id} at {url}" for url, one in found.items())
        raise UsageError(f"the pool serves several models: give one with --model ({serve})")
    return found


def check_newcomer(url: str, key: str) -> str:
    """Return the model of a server that is to join a pool. Raises UsageError if it does not answer, or has none."""
    try:
        first = next(iter(models_at(url, key)), None)  # its adapters come after it
    except (TransientError, ModelError) as error:
        raise UsageError(f"no model server answers at this address: {error}; start it, then add it") from None
    return required(first, f"{url} has no model: load one, then add it").id
