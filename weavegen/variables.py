"""`${NAME}` and `${NAME:-default}` in texts: variables of the process that uses a text, which is an execute worker."""

import os
import re
from collections.abc import Mapping

VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")
OWN = re.compile(r"DATABASE_URL|CELERY_BROKER_URL|WEAVEGEN_\w+")
"""weavegen's own variables. They are never filled in: the text may come from a stranger and go into a box."""


def lacks(text: str) -> str | None:
    """Why the variables of a text can't be filled in; None: they can."""
    for match in VARIABLE.finditer(text):
        if OWN.fullmatch(match[1]):
            return f"names ${match[1]}, which only weavegen itself may read: give it a variable of another name"
        if match[2] is None and match[1] not in os.environ:
            return f"needs ${match[1]}: set it here and for the execute workers"
    return None


def resolved(text: str) -> str:
    """A text with the variables of this process filled in."""

    def value(match: re.Match[str]) -> str:
        default = match[2] or ""
        return default if OWN.fullmatch(match[1]) else os.environ.get(match[1], default)

    return VARIABLE.sub(value, text)


def resolved_values(values: Mapping[str, str]) -> dict[str, str]:
    return {name: resolved(value) for name, value in values.items()}


def hidden(text: str, sources: tuple[str, ...]) -> str:
    """A text without the values of the variables that `sources` name, so that it can be stored. Short values stay."""
    for match in (match for source in sources for match in VARIABLE.finditer(source)):
        if len(value := os.environ.get(match[1], "")) >= MIN_SECRET_CHARS:
            text = text.replace(value, match[0])
    return text


MIN_SECRET_CHARS = 8
