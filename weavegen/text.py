"""Text that people read: safe for a terminal, with sizes and durations in words; and sizes that people type."""

import re

from weavegen.errors import UsageError

UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Control characters (C0 without tab and newline, DEL, C1) and those that change the reading direction."""
SLOW_TO_HIGHLIGHT = "0" * 300
"""After a percent sign in a string, Pygments takes time by the square of such a run."""
UNITS = {"k": 10**3, "m": 10**6, "g": 10**9}


def harmless(text: str) -> str:
    """The text with U+FFFD in place of each character that a terminal would interpret."""
    return UNSAFE.sub("\ufffd", text)


def harmless_json(text: str) -> str:
    """The same JSON with \\u escapes in place of the characters that a terminal would interpret."""
    return UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def bytes_text(count: float) -> str:
    """A number of bytes in B, kB, MB or GB (powers of 1000)."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            break
        count /= 1000
    return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"


def duration(seconds: float) -> str:
    """A length of time in its two largest units."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def number(value: float | None, text: str = "{:,.0f}", unknown: str = "") -> str:
    """The formatted value; `unknown` for None, because an unknown value is not 0."""
    return unknown if value is None else text.format(value)


def parse_size(text: str, option: str, most: float) -> int:
    """Bytes from a number with an optional k, M or G (powers of 1000).

    Raises UsageError, which names the option, unless the size is from 1 to `most`.
    """
    digits, unit = (text[:-1], UNITS[text[-1].lower()]) if text[-1:].lower() in UNITS else (text, 1)
    try:
        value = float(digits) * unit if set(digits.strip()) <= set("0123456789.") else 0.0
    except ValueError:
        value = 0.0
    if not 1 <= value <= most:
        raise UsageError(f"{option} {text[:50]}: give a size such as 500k, 2M or 1G")
    return int(value)
