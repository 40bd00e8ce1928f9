"""weavegen: a batch generator of long LLM-agent traces for training."""

from typing import TYPE_CHECKING

from weavegen.version import __version__

if TYPE_CHECKING:
    from weavegen.engine import tool_requests as requests
    from weavegen.engine.enqueueing import enqueue

__all__ = ["__version__", "enqueue", "requests"]


def __getattr__(name: str) -> object:
    # On first use: importing weavegen must not load the database's driver.
    if name == "enqueue":
        from weavegen.engine.enqueueing import enqueue

        return enqueue
    if name == "requests":
        from weavegen.engine import tool_requests

        return tool_requests
    raise AttributeError(name)
