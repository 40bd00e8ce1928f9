"""`${NAME}` and `${NAME:-default}` in texts: variables of the process that uses a text, which is an execute worker."""

import os
import re
from collections.abc import Mapping

VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")


def missing(text: str) -> str | None:
    """The first variable of a text that this process does not have, and that has no default."""
    names = (match[1] for match in VARIABLE.finditer(text) if match[2] is None and match[1] not in os.environ)
    return next(names, None)


def resolved(text: str) -> str:
    """A text with the variables of this process filled in."""
    return VARIABLE.sub(lambda match: os.environ.get(match[1], match[2] or ""), text)


def resolved_values(values: Mapping[str, str]) -> dict[str, str]:
    return {name: resolved(value) for name, value in values.items()}


def hidden(text: str, sources: tuple[str, ...]) -> str:
    """A text without the values of the variables that `sources` name, so that it can be stored. Short values stay."""
    for match in (match for source in sources for match in VARIABLE.finditer(source)):
        if len(value := os.environ.get(match[1], "")) >= MIN_SECRET_CHARS:
            text = text.replace(value, match[0])
    return text


MIN_SECRET_CHARS = 8
