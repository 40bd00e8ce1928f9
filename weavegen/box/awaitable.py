"""Results that can also be awaited: functions of weave-agent that are coroutines there, and plain functions here."""

import functools
from collections.abc import Callable, Generator
from typing import Any, TypeVar, cast

T = TypeVar("T")
C = TypeVar("C", bound=Callable[..., Any])


class _Awaitable:
    """Awaiting a value gives the value."""

    def __await__(self) -> Generator[None, None, Any]:
        yield from ()
        return self


class AwaitableList(_Awaitable, list[Any]):
    pass


class AwaitableDict(_Awaitable, dict[str, Any]):
    pass


class AwaitableText(_Awaitable, str):
    __slots__ = ()


TYPES: dict[type, Callable[[Any], Any]] = {list: AwaitableList, dict: AwaitableDict, str: AwaitableText}


def returning_plain(call: C) -> C:
    """Let `call`, which awaits what a callback returns, take the results of `awaitable` functions as they are."""

    @functools.wraps(call)
    def called(callback: Callable[[Any], Any], subagent: Any) -> Any:
        def plain(subagent: Any) -> Any:
            result = callback(subagent)
            return next((kind(result) for kind, own in TYPES.items() if type(result) is own), result)

        return call(plain, subagent)

    return cast(C, called)


def awaitable(function: Callable[..., T]) -> Callable[..., T]:
    """Let callbacks write `await function(...)`, too. Results are lists, dicts, texts; others stay as they are."""

    @functools.wraps(function)
    def called(*arguments: Any, **options: Any) -> Any:
        result: Any = function(*arguments, **options)
        return TYPES.get(type(result), lambda same: same)(result)

    return called
