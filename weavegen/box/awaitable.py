"""Results that can also be awaited: functions of weave-agent that are coroutines there, and plain functions here."""

import functools
from collections.abc import Callable, Generator
from typing import Any, TypeVar

T = TypeVar("T")


class Ready:
    """A value that is a coroutine, too, for `await` and for asyncio.gather, create_task and run. It gives the value."""

    def __await__(self) -> Generator[None, None, Any]:
        yield from ()
        return self

    def send(self, value: Any) -> Any:
        raise StopIteration(self)

    def throw(self, kind: Any, value: Any = None, traceback: Any = None) -> Any:
        raise kind

    def close(self) -> None:
        """Nothing is left to be done."""


class AwaitableList(Ready, list[Any]):
    __hash__ = object.__hash__  # type: ignore[assignment]  # asyncio.gather keeps coroutines in a dict


class AwaitableDict(Ready, dict[str, Any]):
    __hash__ = object.__hash__  # type: ignore[assignment]


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
