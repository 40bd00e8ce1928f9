"""Templates, and how values are worded in them. Everything that is put in is escaped and harmless."""

import datetime
from pathlib import Path
from typing import Any

import jinja2
import msgspec
from markupsafe import Markup

from weavegen.config import SIMULATED_MODEL
from weavegen.text import bytes_text, duration, harmless
from weavegen.trace.blocks import CALLBACK, MESSAGE, PROSE, BlockType
from weavegen.viewer.highlight import python, shortened

MINUS, UNKNOWN = "\N{MINUS SIGN}", "\N{EN DASH}"
FOLDER = Path(__file__).parent
BARE = frozenset({BlockType.GENESIS, BlockType.BOOTSTRAP, BlockType.OBSERVATION_INFERENCE})
CODE = frozenset(map(str, CALLBACK | PROSE | BARE))
"""Types of blocks whose body is shown as Python."""


def finalize(value: Any) -> Any:
    """What a template puts in: text less what would be obeyed, or would make it read in another order."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return harmless(value)


def seconds_text(seconds: float | None) -> str:
    """A length of time."""
    if seconds is None:
        return UNKNOWN
    if seconds < 10:
        return f"{seconds:.2f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 120:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def number(value: float | None, digits: int = 0) -> str:
    """A number with commas; a dash for what is not known, which is not 0."""
    return UNKNOWN if value is None else f"{value:,.{digits}f}"


def signed(value: float | None, digits: int = 2) -> str:
    """A score."""
    return UNKNOWN if value is None else f"{value:+.{digits}f}".replace("-", MINUS)


def percent(value: float | None, digits: int = 0) -> str:
    """A share; a small one is not 0."""
    if value is None:
        return UNKNOWN
    least = 10.0 ** -(digits + 2)
    return f"under {least:.{digits}%}" if 0 < value < least / 2 else f"{value:.{digits}%}"


def moment(value: datetime.datetime | float | None) -> str:
    """A time, UTC."""
    if value is None:
        return UNKNOWN
    try:
        at = (
            value if isinstance(value, datetime.datetime) else datetime.datetime.fromtimestamp(value, datetime.UTC)
        )
    except (OverflowError, ValueError, OSError):
        return UNKNOWN
    return at.astimezone(datetime.UTC).strftime("%Y-%m-%d %H:%M:%S")


def visible(text: str) -> str:
    """What was put in or left out: where that is a mere line end, a sign for it."""
    return text if text.strip() else text.replace("\n", "\N{DOWNWARDS ARROW WITH CORNER LEFTWARDS}\n")


def as_json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def environment() -> jinja2.Environment:
    """The templates."""
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        finalize=finalize,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {
        "bytes": bytes_text,
        "seconds": seconds_text,
        "duration": duration,
        "number": number,
        "signed": signed,
        "percent": percent,
        "moment": moment,
        "as_json": as_json,
        "python": python,
        "shortened": shortened,
        "visible": visible,
    }
    templates.globals |= {
        "sim_model": SIMULATED_MODEL,
        "code_types": CODE,
        "prose_types": frozenset(map(str, PROSE | {BlockType.GENESIS})),
        "message_types": frozenset(map(str, MESSAGE)),
    }
    return templates
