"""Measures the state and the rates of a pool's servers, for display."""

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from weavegen.errors import ModelError, TransientError, Unfit
from weavegen.pool import metrics
from weavegen.pool.http import Http
from weavegen.pool.metrics import Metrics
from weavegen.pool.served import list_models


@dataclass(frozen=True)
class ServerRow:
    """A server. A value that it does not report is None."""

    url: str
    state: str
    """`up`; `full`: sequences wait in the server; `away`: it does not answer; `failing`: workers' requests fail."""
    why: str | None = None
    """Why it is away or failing."""
    model: str | None = None
    running: int | None = None
    """Sequences."""
    waiting: int | None = None
    """Sequences."""
    cache: float | None = None
    """KV cache usage, 0 to 1."""
    prefix_hits: float | None = None
    """Fraction of the prompt tokens found in the prefix cache during the survey, else since the server's start."""
    prompt_rate: float | None = None
    """Prompt tokens per second, cached ones included."""
    generated_rate: float | None = None
    """Generated tokens per second."""


def survey(keys: Mapping[str, str], seconds: float = 1.0) -> list[ServerRow]:
    """Measure all servers at the same time, for some seconds. `keys`: API keys by URL."""
    with ThreadPoolExecutor(max(1, len(keys))) as threads:
        return list(threads.map(lambda url: _measure(url, Http(keys[url], 10.0), seconds), keys))


def report(url: str, http: Http, seconds: float) -> tuple[str | None, Metrics | None]:
    """A server's model and metrics, each within `seconds`; None if it lacks them. Raises TransientError, ModelError."""
    models = list_models(url, http, seconds)
    model = models[0].id if models else None
    try:
        return model, metrics.read(url, http, seconds)
    except (ModelError, Unfit):  # a gateway may guard all that is not below /v1
        return model, None


def _measure(url: str, http: Http, seconds: float) -> ServerRow:
    try:
        model, before = report(url, http, 5.0)
        if before is None:
            return ServerRow(url, "up", model=model)
        began = time.monotonic()
        time.sleep(seconds)
        http.close()  # a server may close an idle connection just when it is used again
        now, passed = metrics.read(url, http), time.monotonic() - began
    except (TransientError, ModelError) as error:
        return ServerRow(url, "away", why=str(error))
    hits, queries = now.hits - before.hits, now.queries - before.queries
    if queries <= 0:  # since the server's start
        hits, queries = now.hits, now.queries
    return ServerRow(
        url,
        "full" if now.waiting else "up",
        model=model,
        running=now.running,
        waiting=now.waiting,
        cache=now.cache,
        prefix_hits=hits / queries if queries else None,
        prompt_rate=(now.prompt - before.prompt) / passed,
        generated_rate=(now.generated - before.generated) / passed,
    )
