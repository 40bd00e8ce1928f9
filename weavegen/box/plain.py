"""Converts results of callbacks to text and JSON values of bounded size, equal in every run."""

import linecache
import math
import re
import traceback
from reprlib import Repr
from typing import Any

MAX_TEXT_CHARS = 20_000
"""Characters of a view, or of a string in a result."""
MAX_MESSAGE_CHARS = 2_000
MAX_TRACEBACK_CHARS = 8_000
MAX_VALUES = 2_000
"""Values nested in a result. A result with more becomes its repr."""

ADDRESS = re.compile(r" at 0x[0-9a-fA-F]{6,16}(?=[^<>\n]{0,300}>)")
"""The memory address in a default repr. It differs from run to run."""
SHORT = Repr()
SHORT.maxstring = SHORT.maxother = SHORT.maxlong = 500
SHORT.maxlist = SHORT.maxtuple = SHORT.maxdict = SHORT.maxset = SHORT.maxfrozenset = 50


def clean(text: str, limit: int = MAX_TEXT_CHARS) -> str:
    """Escape what UTF-8 and Postgres can't store (lone surrogates, NUL), and cut the middle of a long text."""
    if len(text) > limit:
        half = limit // 2
        text = f"{text[:half]}\n... ({len(text) - 2 * half:,} characters left out) ...\n{text[-half:]}"
    if " at 0x" in text:
        text = ADDRESS.sub("", text)
    return text.encode("utf-8", "backslashreplace").decode().replace("\x00", "\\x00")


def show(value: object, limit: int = MAX_MESSAGE_CHARS) -> str:
    """Return a bounded repr without memory addresses, even if `__repr__` raises."""
    try:
        text = SHORT.repr(value)
    except Exception as error:  # noqa: BLE001 - a repr may raise anything
        text = f"<{type(value).__name__} whose repr raises {type(error).__name__}>"
    return clean(text, limit)


def plain(value: object) -> Any:
    """Convert a value to JSON data. Parts that JSON can't hold, and values that are too large, become their repr."""
    left = MAX_VALUES

    def walk(value: object, depth: int) -> Any:
        nonlocal left
        left -= 1
        if left < 0 or depth > 12:
            raise RecursionError  # it has too many parts, or is nested too deeply
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return clean(str.__str__(value))
        if isinstance(value, int):
            number = int.__int__(value)  # not the method of a subclass, which may return anything
            return number if -(2**63) <= number < 2**63 else show(number)
        if isinstance(value, float):
            real = float.__float__(value)
            return real if math.isfinite(real) else repr(real)
        if isinstance(value, list | tuple):
            return [walk(item, depth + 1) for item in value]
        if isinstance(value, dict) and all(isinstance(key, str) for key in value):
            return {clean(str.__str__(key), 200): walk(item, depth + 1) for key, item in dict.items(value)}
        if type(value).__module__ == "numpy" and getattr(value, "shape", None) == ():
            return walk(value.item(), depth + 1)  # type: ignore[attr-defined]
        return show(value)

    try:
        result = walk(value, 0)
        return result if size(result) <= 4 * MAX_TEXT_CHARS else show(value)
    except RecursionError:
        return show(value)


def size(value: Any) -> int:
    """Count the characters in all strings of a JSON value."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, list):
        return sum(map(size, value))
    if isinstance(value, dict):
        return sum(len(key) + size(item) for key, item in value.items())
    return 8


def remember_source(name: str, source: str) -> None:
    """Let tracebacks show the source of a block, which is not in a file."""
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)


def failure(error: BaseException, stage: str, app: str) -> dict[str, str]:
    """Describe an error as a `steps.Failure`. The traceback keeps only frames of blocks and of files in `app`."""
    name = "TimeoutError" if type(error).__name__ == "TimeLimit" else type(error).__name__
    try:
        message = str(error)
    except Exception as other:  # noqa: BLE001 - a model's exception class may do anything
        message = f"<its text raises {type(other).__name__}>"
    return {
        "type": clean(name, 200),
        "message": clean(message, MAX_MESSAGE_CHARS),
        "traceback": clean(format_traceback(error, name, app), MAX_TRACEBACK_CHARS),
        "stage": stage,
    }


def format_traceback(error: BaseException, name: str, app: str) -> str:
    roots = ("/app/", app.rstrip("/") + "/")
    try:
        report = traceback.TracebackException.from_exception(error, compact=True)
        chain, seen = [report], {id(report)}
        for link in chain:
            link.stack[:] = [frame for frame in link.stack if frame.filename.startswith(roots)]
            parts = [link.__cause__, link.__context__, *(link.exceptions or ())]
            chain += [part for part in parts if part is not None and id(part) not in seen and len(chain) < 20]
            seen.update(map(id, chain))
        text = "".join(report.format())
        own = type(error).__module__ + "." + type(error).__qualname__
        return text.replace(own, name) if own.startswith("weavegen.") else text
    except Exception as other:  # noqa: BLE001 - see above
        return f"{name}: <its traceback raises {type(other).__name__}>\n"
