"""Code as HTML: classes of pygments, coloured by static/code.css. Whatever the text is, it stays text."""

from functools import lru_cache

from markupsafe import Markup, escape
from pygments import highlight
from pygments.formatters.html import HtmlFormatter
from pygments.lexers.python import PythonLexer

from weavegen.text import harmless

LONGEST = 100_000
"""Characters of a text that are shown; the whole of it is in the download."""
COLOURED = 20_000
"""Characters up to which a text is coloured."""

_LEXER = PythonLexer(stripnl=False, ensurenl=False)
_FORMATTER: HtmlFormatter[str] = HtmlFormatter(nowrap=True)


@lru_cache(maxsize=300)
def python(text: str) -> Markup:
    """Python source."""
    text = harmless(text)
    if len(text) > COLOURED:
        return Markup(escape(shortened(text)))
    return Markup(highlight(text, _LEXER, _FORMATTER))  # escaped by the formatter


def shortened(text: str) -> str:
    """A text, less what is too long to be shown, with a word on how much that is."""
    if len(text) <= LONGEST:
        return text
    return f"{text[:LONGEST]}\n… {len(text) - LONGEST:,} characters more: see the download"
