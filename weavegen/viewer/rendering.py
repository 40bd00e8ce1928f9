"""The templates, and the formats of values in them. All values are escaped and free of control characters."""

import base64
import datetime
import hashlib
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import jinja2
import msgspec
from markupsafe import Markup, escape
from pygments import highlight
from pygments.formatters.html import HtmlFormatter
from pygments.lexers.python import PythonLexer

from weavegen.config import SIMULATED_MODEL
from weavegen.monitoring.progress import seconds_left
from weavegen.text import SLOW_TO_HIGHLIGHT, bytes_text, duration, harmless
from weavegen.trace.blocks import CALLBACK, MESSAGE, PROSE, BlockType

FOLDER = Path(__file__).parent
STATIC = FOLDER / "static"
MINUS, UNKNOWN = "\N{MINUS SIGN}", "\N{EN DASH}"
"""`UNKNOWN` stands for None, which is not 0."""
BARE = frozenset({BlockType.GENESIS, BlockType.BOOTSTRAP, BlockType.OBSERVATION_INFERENCE})
CODE = frozenset(map(str, CALLBACK | PROSE | BARE))
"""Types of blocks whose body is shown as Python."""

MAX_CHARS = 100_000
"""Longer texts are cut. The download has the whole text."""
MAX_HIGHLIGHTED_CHARS = 20_000
"""Longer texts are not highlighted."""

_LEXER = PythonLexer(stripnl=False, ensurenl=False)
_FORMATTER: HtmlFormatter[str] = HtmlFormatter(nowrap=True)


@cache
def templates() -> jinja2.Environment:
    """The folder templates/. Undefined names raise, values are escaped, None is shown as nothing."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        finalize=_finalize,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = (duration, number, signed, percent, moment, as_json, python, shortened, visible)
    environment.filters |= {filter.__name__: filter for filter in filters} | {
        "bytes": lambda value: UNKNOWN if value is None else bytes_text(value),
        "seconds": seconds_text,
    }
    environment.globals |= {
        "sim_model": SIMULATED_MODEL,
        "seconds_left": seconds_left,
        "code_types": CODE,
        "prose_types": frozenset(map(str, PROSE | {BlockType.GENESIS})),
        "message_types": frozenset(map(str, MESSAGE)),
    }
    return environment


@cache
def saved_style() -> Markup:
    """The style sheet inside a saved page."""
    names = ("colours.css", "app.css", "plot.css", "code.css")
    return Markup("".join((STATIC / name).read_text() for name in names))


@cache
def saved_policy() -> str:
    """Content-Security-Policy of a saved page: its own style sheet and nothing else."""
    digest = base64.b64encode(hashlib.sha256(saved_style().encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def _finalize(value: Any) -> Any:
    """Nothing for None; no control characters, also in markup."""
    if value is None:
        return ""
    if isinstance(value, Markup):
        return Markup(harmless(value))
    return harmless(value) if isinstance(value, str) else value


def seconds_text(seconds: float | None) -> str:
    """A length of time in its two largest units."""
    if seconds is None:
        return UNKNOWN
    if seconds < 10:
        return f"{seconds:.2f} s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest} s" if 2 <= minutes < 120 else duration(seconds)


def number(value: float | None, digits: int = 0) -> str:
    """A number with thousands separators."""
    return UNKNOWN if value is None else f"{value:,.{digits}f}"


def signed(value: float | None, digits: int = 2) -> str:
    return UNKNOWN if value is None else f"{value:+.{digits}f}".replace("-", MINUS)


def percent(value: float | None, digits: int = 0) -> str:
    """A share; one that is not 0 or 1 is not rounded to it, but shown as "under 1%" or "over 99%"."""
    if value is None:
        return UNKNOWN
    text, least = f"{value:.{digits}%}", 10.0 ** -(digits + 2)
    # The ends of an interval may miss 0 and 1 by an error of their computation.
    if value > 1e-15 and text == f"{0:.{digits}%}":
        return f"under {least:.{digits}%}"
    return f"over {1 - least:.{digits}%}" if value < 1 - 1e-15 and text == f"{1:.{digits}%}" else text


def moment(value: datetime.datetime | float | None, zone: str = "") -> str:
    """Date and time in UTC, followed by `zone`. A number is in seconds since 1970."""
    try:
        if not isinstance(value, datetime.datetime):
            value = None if value is None else datetime.datetime.fromtimestamp(value, datetime.UTC)
    except (OverflowError, ValueError, OSError):
        return UNKNOWN
    return UNKNOWN if value is None else value.astimezone(datetime.UTC).strftime(f"%Y-%m-%d %H:%M:%S{zone}")


def visible(text: str) -> str:
    """The text, with a sign for the line ends if it has nothing else to see."""
    return text if text.strip() else text.replace("\n", "\N{DOWNWARDS ARROW WITH CORNER LEFTWARDS}\n")


def as_json(value: Any, indent: int = 2) -> str:
    """JSON; with `indent` 0 in one line."""
    return msgspec.json.format(msgspec.json.encode(value), indent=indent).decode()


@lru_cache(maxsize=300)
def python(text: str) -> Markup:
    """Highlighted Python source, with the classes of pygments."""
    if len(text) > MAX_HIGHLIGHTED_CHARS or SLOW_TO_HIGHLIGHT in text:
        return Markup(escape(shortened(text)))
    return Markup(highlight(text, _LEXER, _FORMATTER))  # escaped by the formatter


def shortened(text: str) -> str:
    """The text, cut to MAX_CHARS with a note about the rest."""
    if len(text) <= MAX_CHARS:
        return text
    return f"{text[:MAX_CHARS]}\n… {len(text) - MAX_CHARS:,} more characters: see the download"
