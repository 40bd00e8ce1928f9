"""Results that can also be awaited: functions of weave-agent that are coroutines there, and plain functions here."""

import functools
from collections.abc import Callable, Generator
from typing import Any, TypeVar

T = TypeVar("T")


class Ready:
    """Awaiting a value gives the value."""

    def __await__(self) -> Generator[None, None, Any]:
        yield from ()
        return self


class AwaitableList(Ready, list[Any]):
    pass


class AwaitableDict(Ready, dict[str, Any]):
    pass


class AwaitableText(Ready, str):
    __slots__ = ()


TYPES: dict[type, Callable[[Any], Any]] = {list: AwaitableList, dict: AwaitableDict, str: AwaitableText}


def awaitable(function: Callable[..., T]) -> Callable[..., T]:
    """Let callbacks write `await function(...)`, too. Results are lists, dicts, texts; others stay as they are."""

    @functools.wraps(function)
    def called(*arguments: Any, **options: Any) -> Any:
        result: Any = function(*arguments, **options)
        return TYPES.get(type(result), lambda same: same)(result)

    return called
