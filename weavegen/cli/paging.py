"""A trace in a terminal: coloured, through the user's pager, and read from the database as it is needed."""

import os
from collections.abc import Iterable

import click

from weavegen.text import SLOW_TO_HIGHLIGHT, harmless

LESS = "FRX"
"""Default of the variable LESS: a text that fits the window is just printed, and colours are shown."""
MAX_COLOURED_CHARS = 100_000
"""Longer blocks get no colours: highlighting so many characters takes half a second."""


def page(texts: Iterable[str]) -> None:
    """Show pieces of Python source, each legal by itself. Pieces after the user has left are not read."""
    from pygments import highlight
    from pygments.formatters.terminal import TerminalFormatter
    from pygments.lexers.python import PythonLexer

    coloured = "NO_COLOR" not in os.environ and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")
    os.environ.setdefault("LESS", LESS)
    os.environ.setdefault("LESSCHARSET", "utf-8")
    with click.get_pager_file(color=coloured) as out:
        for text in map(harmless, texts):
            if coloured and len(text) <= MAX_COLOURED_CHARS and SLOW_TO_HIGHLIGHT not in text:
                out.write(highlight(text, PythonLexer(stripnl=False, ensurenl=False), TerminalFormatter(bg="dark")))
            else:
                out.write(text)
