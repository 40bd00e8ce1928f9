"""Harbor tasks: worlds in container images, made by others, with a verifier of their own (docs/harbor.md).

`harbor run --environment-import-path weavegen.harbor:BubblewrapEnvironment` runs tasks in weavegen's boxes.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weavegen.harbor.environment import BubblewrapEnvironment

__all__ = ["BubblewrapEnvironment"]


def __getattr__(name: str) -> Any:
    """Import the plug-in when it is asked for: it needs the package `harbor`, which weavegen itself does not."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from weavegen.harbor import environment

    return getattr(environment, name)
