"""Removes forged markup from candidates: comments that imitate the trace's labels, headers or footers.

A candidate must not write its own labels. Only comments count; text in a string literal stays.
"""

import io
import re
import tokenize

_DISGUISES = str.maketrans(
    {chr(wide): chr(wide - 0xFEE0) for wide in range(0xFF01, 0xFF5F)}  # full-width letters and signs
    | dict.fromkeys(map(chr, (0xAD, *range(0x200B, 0x2010), *range(0x2060, 0x2065), 0xFEFF)), "")  # invisible
    | {"\u00a0": " ", "\u3000": " ", "\ua789": ":", "\u2236": ":"}
)
_LABEL = re.compile(r"#[\W_]{0,9}q[\W_]{0,4}:|\b(?:yes|no)\W{0,4}\([\d.]+ ?%\)\W*$", re.IGNORECASE)
"""A variant of `#q:`, or an answer with its percentage at the end of the line."""
_HEADER = re.compile(
    r"#[ \t]*(?:startblock\b|endblock\b|invalid_syntax\b|bm25_query\b|tags:|index +\d+\s*$|block_size +\d+\s*$"
    r"|(?:timestamp|time_remaining) +-?[\d.]+|starting new tick with block #|current working directory:"
    r"|(?:start|end) retrieved blocks\b)|#(?:subagent|title) ",
    re.IGNORECASE,
)
_COMMENT = re.compile(r"#[^\n]*")
_END = re.compile(r"#[# \t]*(?:endblock|startblock)\b", re.IGNORECASE)


def is_fake(comment: str) -> bool:
    """Whether a comment, which begins with its hash, imitates the trace's notation."""
    comment = comment.translate(_DISGUISES)
    marked = "#" + comment.lstrip("#")
    return _HEADER.match(marked) is not None or _LABEL.search(" ".join(comment.split())) is not None


def _suspicious(text: str) -> bool:
    """Whether the text may hold forged markup. Nearly all candidates do not, and need no tokenizer."""
    comments = _COMMENT.findall(text if text.isascii() else text.translate(_DISGUISES))
    return any(_HEADER.search(comment) or _LABEL.search(" ".join(comment.split())) for comment in comments)


def without_fakes(text: str) -> tuple[str, int | None]:
    """Remove forged markup from `text`, which is legal Python.

    Returns the text, and the offset of the first forged `#endblock` or `#startblock` after code, or None.
    """
    if not _suspicious(text):
        return text, None
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    lines = text.split("\n")
    end: int | None = None
    dropped: set[int] = set()
    code_seen = False
    for token in tokenize.generate_tokens(io.StringIO(text, newline="\n").readline):
        code_seen = code_seen or token.type not in (tokenize.COMMENT, tokenize.NL)
        if token.type == tokenize.COMMENT and is_fake(token.string):
            row, column = token.start
            lines[row - 1] = before = lines[row - 1][:column].rstrip()
            if not before:
                dropped.add(row - 1)
            if code_seen and end is None and _END.match(token.string.translate(_DISGUISES)):
                end = sum(len(line) + 1 for i, line in enumerate(lines[: row - 1]) if i not in dropped) + len(before)
    return "\n".join(line for i, line in enumerate(lines) if i not in dropped), end


def without_fake_lines(text: str) -> str:
    """Remove lines of forged markup from `text`, which is not legal Python and therefore has no tokens."""
    if not _suspicious(text):
        return text
    stripped = ((line, line.strip(" \t\f\r")) for line in text.split("\n"))
    return "\n".join(line for line, bare in stripped if not (bare.startswith("#") and is_fake(bare)))
