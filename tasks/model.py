"""The pool of model servers, as this worker's steps use it."""

from collections.abc import Callable
from functools import cache
from typing import TypeVar

from tasks.worker import settings
from weavegen.pool.client import ModelClient
from weavegen.pool.pool import Pool
from weavegen.services.fleet import model_urls
from weavegen.store import jobs, traces
from weavegen.store.session import engine as database
from weavegen.store.session import single
from weavegen.store.steps import Claimed

T = TypeVar("T")


@cache
def pool(urls: tuple[str, ...], model: str | None) -> Pool:
    return Pool(urls, settings().api_key, model)


def ask(held: Claimed, model: str | None, sequences: int, call: Callable[[ModelClient], T]) -> T:
    """What `call` returns, with the client of the server that the pool chooses for a trace's request.

    `sequences`: how many prompts times continuations it is.
    """
    servers = pool(tuple(model_urls(settings())), model)

    def named(client: ModelClient) -> tuple[str, T]:
        return client.model, call(client)

    name, result = servers.with_server(held.trace_id, home(servers, held), sequences, named)
    if held.server is None:
        with single().connect() as conn:
            jobs.name_model(conn, held.trace_id, name)
    return result


def model_name(held: Claimed, model: str | None) -> str:
    """The name of the model that a trace's job uses."""
    return model or ask(held, model, 0, lambda client: client.model)


def home(servers: Pool, held: Claimed) -> str:
    """The server that holds a trace's prefix. A trace without one, or whose server left the pool, is given one."""
    if held.server in servers.urls:
        return held.server
    with database().begin() as conn:
        return traces.settle(conn, held.trace_id, servers.urls, servers.home)
