"""How the servers of a pool are doing, for people."""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from weavegen.errors import ModelError, TransientError
from weavegen.pool import metrics
from weavegen.pool.http import Http
from weavegen.pool.metrics import Metrics
from weavegen.pool.served import served


@dataclass(frozen=True)
class ServerRow:
    """One server. What it does not tell is None."""

    url: str
    state: str
    """`up`; `full`: sequences wait in it; `away`."""
    why: str | None = None
    """It is away."""
    model: str | None = None
    running: int | None = None
    """Sequences."""
    waiting: int | None = None
    cache: float | None = None
    """Use of the KV cache, 0 to 1."""
    prefix_hits: float | None = None
    """Part of the prompt tokens that the prefix cache held: meanwhile, or since its start if nothing came."""
    prompt_rate: float | None = None
    """Prompt tokens a second, cached ones included."""
    generated_rate: float | None = None
    """Generated tokens a second."""


def survey(urls: Sequence[str], api_key: str | Mapping[str, str], seconds: float = 1.0) -> list[ServerRow]:
    """Look at all servers for some seconds, side by side. `api_key`: of all, or by URL."""

    def look(url: str) -> ServerRow:
        return _look(url, Http(api_key if isinstance(api_key, str) else api_key[url], 10.0), seconds)

    with ThreadPoolExecutor(max(1, len(urls))) as threads:
        return list(threads.map(look, urls))


def _look(url: str, http: Http, seconds: float) -> ServerRow:
    try:
        models = served(url, http, 5.0)
        model = models[0].id if models else None
        try:
            before, began = metrics.read(url, http), time.monotonic()
        except ModelError:
            return ServerRow(url, "up", model=model)
        time.sleep(seconds)
        http.close()  # A server closes what is idle, often after five seconds: it could do so under this request.
        now, passed = metrics.read(url, http), time.monotonic() - began
    except (TransientError, ModelError) as error:
        return ServerRow(url, "away", why=str(error))
    return ServerRow(
        url,
        "full" if now.waiting else "up",
        model=model,
        running=now.running,
        waiting=now.waiting,
        cache=now.cache,
        prefix_hits=_hits(before, now),
        prompt_rate=(now.prompt - before.prompt) / passed,
        generated_rate=(now.generated - before.generated) / passed,
    )


def _hits(before: Metrics, now: Metrics) -> float | None:
    if now.queries > before.queries:
        return (now.hits - before.hits) / (now.queries - before.queries)
    return now.hits / now.queries if now.queries else None
