"""Comments that imitate the trace's own notation: evaluator lines, headers, footers. A candidate may have none.

Only comments are meant: what stands in a string literal is text.
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
"""`#q:` in any dress, or a drawn answer with its percentage at the end."""
_HEADER = re.compile(
    r"#[ \t]*(?:startblock\b|endblock\b|invalid_syntax\b|bm25_query\b|tags:|index +\d+\s*$|block_size +\d+\s*$"
    r"|(?:timestamp|time_remaining) +-?[\d.]+|starting new tick with block #|current working directory:"
    r"|(?:start|end) retrieved blocks\b)|#(?:subagent|title) ",
    re.IGNORECASE,
)
_COMMENT = re.compile(r"#[^\n]*")
_END = re.compile(r"#[# \t]*(?:endblock|startblock)\b", re.IGNORECASE)


def is_fake(comment: str) -> bool:
    """Whether a comment, from its hash on, imitates the trace's notation."""
    comment = comment.translate(_DISGUISES)
    marked = "#" + comment.lstrip("#")
    return _HEADER.match(marked) is not None or _LABEL.search(" ".join(comment.split())) is not None


def _suspicious(text: str) -> bool:
    """Whether the text may hold a fake. Cheap: it settles nearly every candidate without tokens."""
    for found in _COMMENT.findall(text if text.isascii() else text.translate(_DISGUISES)):
        if _HEADER.search(found) or _LABEL.search(" ".join(found.split())):
            return True
    return False


def without_fakes(text: str) -> tuple[str, int | None]:
    """`text`, which is Python, less its fakes; and where the first fake end of a block stood that follows code."""
    if not _suspicious(text):
        return text, None
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    lines = text.split("\n")
    end: tuple[int, int] | None = None
    dropped: set[int] = set()
    code = False
    for token in tokenize.generate_tokens(io.StringIO(text, newline="\n").readline):
        code = code or token.type not in (tokenize.COMMENT, tokenize.NL)
        if token.type == tokenize.COMMENT and is_fake(token.string):
            row, column = token.start
            before = lines[row - 1][:column].rstrip()
            lines[row - 1] = before
            if not before:
                dropped.add(row - 1)
            if code and end is None and _END.match(token.string.translate(_DISGUISES)):
                end = (row - 1, len(before))
    left = "\n".join(line for row, line in enumerate(lines) if row not in dropped)
    if end is None:
        return left, None
    row, column = end
    return left, sum(len(line) + 1 for i, line in enumerate(lines[:row]) if i not in dropped) + column


def without_fake_lines(text: str) -> str:
    """`text`, which is no Python, less the lines that are fakes. It has no tokens, so strings count too."""
    if not _suspicious(text):
        return text
    return "\n".join(line for line in text.split("\n") if not _is_fake_line(line.strip(" \t\f\r")))


def _is_fake_line(line: str) -> bool:
    return line.startswith("#") and is_fake(line)
