"""Harbor tasks: worlds in container images, made by others, with a verifier of their own (docs/harbor.md).

For the package `harbor` there are an environment and an agent:

    harbor run --path tasks/ --env weavegen.harbor:BubblewrapEnvironment --agent weavegen.harbor:ReactAgent --model NAME
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weavegen.harbor.environment import BubblewrapEnvironment
    from weavegen.harbor.react_agent import ReactAgent

__all__ = ["BubblewrapEnvironment", "ReactAgent"]


def __getattr__(name: str) -> Any:
    """Import a plug-in when it is asked for: it needs the package `harbor`, which weavegen itself does not."""
    modules = {"BubblewrapEnvironment": "environment", "ReactAgent": "react_agent"}
    if name not in modules:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{modules[name]}"), name)
