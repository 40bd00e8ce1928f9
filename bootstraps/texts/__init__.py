"""The texts of this folder, cut into pages, and questions about them.

Beside `NAME.txt` lies `NAME.toml` with the questions. An answer is kept as the SHA-256 of a salt and the answer
in lower case, so that it can be checked and not read. Put two such files here, and there is another text.
"""

import hashlib
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
PAGE = 240
"""Words after which a page ends, at the next paragraph's end."""


def names() -> list[str]:
    """All texts."""
    return sorted(path.stem for path in FOLDER.glob("*.txt"))


def title(name: str) -> str:
    """A text's first line."""
    return (FOLDER / f"{name}.txt").read_text().partition("\n")[0]


@cache
def pages(name: str) -> list[str]:
    """A text without its title, in pages of whole paragraphs."""
    found: list[str] = []
    words = PAGE
    for paragraph in (FOLDER / f"{name}.txt").read_text().strip().split("\n\n")[1:]:
        if words >= PAGE:
            found.append(paragraph)
            words = 0
        else:
            found[-1] += "\n\n" + paragraph
        words += len(paragraph.split())
    return found


@cache
def _asked(name: str) -> dict[str, Any]:
    return tomllib.loads((FOLDER / f"{name}.toml").read_text())


def questions(name: str) -> list[str]:
    """Questions about a text, in the order in which it answers them. The answer is one word of the text."""
    return [question["text"] for question in _asked(name)["question"]]


def normalise(answer: str) -> str:
    """An answer without capitals, spaces and punctuation around it."""
    return answer.lower().strip(" \t\n.,;:!?\"'")


def is_right(name: str, question: str, answer: str) -> bool:
    """Whether this is the answer to one of a text's questions."""
    hashed = hashlib.sha256((_asked(name)["salt"] + normalise(answer)).encode()).hexdigest()
    return any(one["text"] == question and one["answer"] == hashed for one in _asked(name)["question"])
