"""Whether an unfinished text is the beginning of a legal block. For tree search, which writes blocks in pieces.

Two parsers are used. CPython's parser says whether the text can become Python: it stops at the first token that no
program could have there, and the flag ALLOW_INCOMPLETE_INPUT makes it distinguish that from the end of the text.
(Lark's own grammar of Python lacks much of the language, such as `except*` and several conditions in a
comprehension, so it would refuse legal code.) Lark's interactive parser says whether the statements so far are the
beginning of the type's structure.
"""

import ast
import contextlib
import io
import itertools
import keyword
import re
import tokenize
from collections.abc import Iterator

from weavegen.linting.structure import GRAMMARS, REGISTERS, Shape, kinds
from weavegen.linting.truncate import MAX_CHARS, parse, parsed
from weavegen.python_parser import NO_PYTHON
from weavegen.trace.blocks import CALLBACK, PROSE, BlockType

ALLOW_INCOMPLETE_INPUT = 0x4000
"""A flag of `compile` since Python 3.11. The standard library's codeop uses it, and does not export it."""

UNFINISHED = re.compile(r"incomplete input|unterminated (?:triple-quoted f|f-string .*line (\d+))")
"""The errors of a text that ends too early. Since Python 3.12 f-strings have their own, with the number of the line."""
WORDS = (*keyword.kwlist, *keyword.softkwlist)
STRING_PREFIXES = frozenset({"r", "u", "b", "f", "br", "rb", "fr", "rf"})
GROWTH = ("=", ">", "*", ".", "..", "0", "j", "0j")
"""Characters that complete a token such as `!`, `-`, `..` or `1e-`. A pattern `1 - 2` must become `1 - 2j`."""

COMPOUND = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.Match)
"""Statements that another clause may extend."""

CLAUSES = frozenset({"elif", "else", "except", "finally"})
"""First words of a clause that extends the statement before."""

NOT_FIRST = frozenset({"class", "assert", "del", "raise", "return", "global", "nonlocal", "pass", "break", "continue"})
"""First words that no top-level statement of an observation-inference block may have."""

_LAST_WORD = re.compile(r"[a-zA-Z]{1,12}$")
_BLANK = re.compile(r"(?:[\s\\(]|#[^\n]*(?:\n|$))*")


def viable_prefix(type: BlockType, text: str) -> bool:
    """Whether some continuation of `text` is a legal block of the type, without penalty for syntax or shape.

    True for every beginning of every legal block. In general, False after the first illegal token. Some errors are
    found only when their statement is complete, for example errors inside an f-string or after a call.
    """
    if len(text) > MAX_CHARS:
        return False
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _may_be_python(text) and (type not in GRAMMARS or _may_have_shape(type, text))


def _may_be_python(text: str) -> bool:
    head, newline, line = text.rpartition("\n")
    if newline and not line.strip(" \t\f"):  # the indentation may grow
        text = head if head.endswith("\\") else head + newline
    elif not text.strip(" \t\f"):
        return True
    text = text.removesuffix("\\")  # the next line may continue this one
    return _viable(text) or (not text.endswith("\n") and any(_viable(completed) for completed in _completions(text)))


def _viable(text: str) -> bool:
    """Whether the text is the beginning of a program, if its last token is complete."""
    # Without a backslash at the end, an unfinished last line such as `x = 1 +` would be an error.
    return _state(text) != "broken" or (not text.endswith("\n") and _state(text + " \\") == "open")


def _state(text: str) -> str:
    """`whole`: a program; `open`: the beginning of one; `broken`: the parser found an error before the end."""
    try:
        parse(text, ALLOW_INCOMPLETE_INPUT)
    except SyntaxError as error:
        found = UNFINISHED.match(error.msg)
        return "open" if found and found[1] in (None, str(text.count("\n") + 1)) else "broken"
    except NO_PYTHON:
        return "broken"
    return "whole"


def _completions(text: str) -> list[str]:
    """The text with its last token completed in every way that could make it legal."""
    quoted = [text + more for more in "\"'}"] if "{" in text else []  # in an f-string since Python 3.12
    if (last_word := _LAST_WORD.search(text)) is None:
        return [text + more for more in GROWTH if text[-1] in "!=.:-*/<>+0123456789_"] + quoted
    part = last_word.group()
    completed = [text + word[len(part) :] for word in WORDS if word.startswith(part) and word != part]
    if part.lower() in STRING_PREFIXES:
        completed.append(text + '""')
    return [*completed, text + "0", text + "0j", *quoted]  # 0x, 1e


def _may_have_shape(type: BlockType, text: str) -> bool:
    start, core = _last_statement(text)
    before, last = parsed(text[:start]), text[start:]
    if before is None:
        return True  # CPython accepts the text; the statements can't be separated
    complete = before.body
    if last.endswith("\n") and (tree := parsed(last)) and tree.body and not isinstance(tree.body[-1], COMPOUND):
        complete, last = [*complete, *tree.body], ""  # no other clause can follow
    shape = Shape(type)
    if not all(shape.take(kind) for kind in kinds(type, complete)):
        return False
    return not last.strip() or any(shape.accepts(kind) for kind in _possible(type, text[core:], start != core))


def _last_statement(text: str) -> tuple[int, int]:
    """Offsets of the last top-level statement and of its part after the decorators; the text's end if missing."""
    starts = list(itertools.accumulate((len(line) + 1 for line in text.split("\n")), initial=0))
    first = core = len(text)
    read = 0
    decorated, fresh = False, True
    for token in _tokens(text):
        begin, read = (starts[row - 1] + column for row, column in (token.start, token.end))
        if token.type in (tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT):
            continue
        if token.type in (tokenize.NEWLINE, tokenize.ENDMARKER):
            fresh = True
            continue
        # The last word of the text may be unfinished.
        words = CLAUSES if read < len(text) else {word[: len(token.string)] for word in CLAUSES}
        clause = first < len(text) and token.string in words
        if fresh and token.start[1] == 0 and not clause:
            first, core = (first if decorated else begin), begin
            decorated = token.string == "@"
        fresh = False
    rest = text[read:].lstrip()
    begin = len(text) - len(rest)
    # An unclosed triple-quoted string is not a token.
    if rest and fresh and text[:begin].endswith("\n" if begin else ""):
        first, core, decorated = (first if decorated else begin), begin, False
    return first, (len(text) if decorated else core)


def _tokens(text: str) -> Iterator[tokenize.TokenInfo]:
    """The tokens up to an unfinished one at the end. Brackets may be open."""
    with contextlib.suppress(tokenize.TokenError, SyntaxError):
        yield from tokenize.generate_tokens(io.StringIO(text, newline="\n").readline)


def _possible(type: BlockType, core: str, decorated: bool) -> set[str]:
    """The kinds of statements that begin with `core` (`decorated`: after decorators)."""
    if type in PROSE:
        core = core[_BLANK.match(core).end() :]  # type: ignore[union-attr]
        return {"STRING"} if re.match(r"[rRuU]?(?:[\"']|$)", core) else set()
    word, rest = re.match(r"(\w*)(.*)", core, re.DOTALL).groups()  # type: ignore[union-attr]
    if rest:
        follows = re.sub(r"[\s\\]", "", rest[:99])[:3]
        function = word == "def" or (word == "async" and "def".startswith(follows))
    else:
        function = "def".startswith(word) or "async".startswith(word)
    possible = {"FUNCTION"} if function else set()
    if decorated:
        return possible
    if type in CALLBACK:
        call = f"self.{REGISTERS[type]}"
        plain = re.sub(r"[\s\\()]|#[^\n]*", "", core[:999])
        if call.startswith(plain) or plain.startswith(call):
            possible.add("REGISTRATION")
    elif not rest or word not in NOT_FIRST:
        possible |= {"VIEW", "SETUP"}
    return possible
