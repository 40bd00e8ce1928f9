"""Whether a half-written text is still the beginning of a legal block. For tree search, which writes in pieces.

Two parsers share the work. Python's own says whether the text can still become Python: it stops at the first
token that no program could have there, and one flag makes it tell that place from the text's end. (Lark comes
with a grammar of Python, too, but one that lacks much of the language: several conditions in a comprehension,
`except*`, decorators that are expressions, and more. What CPython accepts as a whole, nothing else may refuse.)
Lark's interactive parser says whether the statements so far are the beginning of the type's shape.
"""

import ast
import io
import keyword
import re
import tokenize
import warnings
from collections.abc import Iterator

from weavegen.linting.structure import GRAMMARS, REGISTERS, Shape, kinds
from weavegen.linting.truncate import LONGEST, NO_PYTHON, check_effort, parse, parses
from weavegen.trace.blocks import CALLBACK, PROSE, BlockType

ALLOW_INCOMPLETE_INPUT = 0x4000
"""A flag of `compile` since 3.11, used by the standard library's codeop, which does not export it for others."""

WORDS = (*keyword.kwlist, *keyword.softkwlist)
STRING_PREFIXES = frozenset({"r", "u", "b", "f", "br", "rb", "fr", "rf"})
GROWTH = ("=", ">", "*", ".", "..", "0")
"""What makes a whole token of a half-written one: `!`, `-`, `..`, `1e-`."""

COMPOUND = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.Match)
"""Statements that may still become something else when they go on."""

CLAUSES = frozenset({"elif", "else", "except", "finally"})
"""A line that begins with one goes on with the statement before."""

NEVER = frozenset({"class", "assert", "del", "raise", "return", "global", "nonlocal", "pass", "break", "continue"})
"""No top-level statement of an observation-inference block begins so."""

_LAST_WORD = re.compile(r"[a-zA-Z]{1,12}$")
_BLANK = re.compile(r"(?:[\s\\(]|#[^\n]*(?:\n|$))*")


def viable_prefix(type: BlockType, text: str) -> bool:
    """Whether some continuation makes of `text` a legal block of the type: no penalty for syntax or shape.

    True of every beginning of every legal block. False as a rule from the first token that can't stand where it
    does; what only shows once a statement is whole (an f-string's inside, what follows a call) shows there.
    """
    if len(text) > LONGEST:
        return False
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _may_be_python(text) and (type not in GRAMMARS or _may_have_shape(type, text))


# -------------------------------------------------------------------------------------------- Python


def _may_be_python(text: str) -> bool:
    head, newline, line = text.rpartition("\n")
    if newline and not line.strip(" \t\f"):  # an indentation that may still grow
        text = head if head.endswith("\\") else head + newline
    elif not text.strip(" \t\f"):
        return True
    text = text.removesuffix("\\")  # a continuation's beginning
    if _viable(text):
        return True
    if text.endswith("\n"):
        return False
    return any(_viable(longer) for longer in _grown(text))


def _viable(text: str) -> bool:
    """Whether the text, its last token whole, is the beginning of a program."""
    # A backslash at the end keeps the last line open, where nothing else does: `x = 1 +` would else be an error.
    return _state(text) != "broken" or (not text.endswith("\n") and _state(text + " \\") == "open")


def _state(text: str) -> str:
    """`whole`: a program. `open`: all of it was taken, and more is needed. `broken`: it was not all taken."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            check_effort(text)
            compile(text, "<block>", "exec", ast.PyCF_ONLY_AST | ALLOW_INCOMPLETE_INPUT, dont_inherit=True)
    except SyntaxError as error:
        return "open" if error.msg == "incomplete input" else "broken"
    except NO_PYTHON:
        return "broken"
    return "whole"


def _grown(text: str) -> list[str]:
    """The text with its last token completed in the ways that could make a difference."""
    word = _LAST_WORD.search(text)
    if word is None:
        return [text + more for more in GROWTH] if text[-1] in "!=.:-*/<>+0123456789_" else []
    part = word.group()
    grown = [text + keyword[len(part) :] for keyword in WORDS if keyword.startswith(part) and keyword != part]
    if part.lower() in STRING_PREFIXES:
        grown.append(text + '""')
    return [*grown, text + "0"]  # 0x, 1e


# -------------------------------------------------------------------------------------------- shape


def _may_have_shape(type: BlockType, text: str) -> bool:
    start, core = _last_statement(text)
    try:
        done = parse(text[:start]).body
    except NO_PYTHON:
        return True  # not to be told apart by lines alone; Python's parser had no objection
    last = text[start:]
    if last.endswith("\n") and parses(last):
        body = parse(last).body
        if body and not isinstance(body[-1], COMPOUND):  # else it may go on
            done, last = [*done, *body], ""
    shape = Shape(type)
    if not all(shape.take(kind) for kind in kinds(type, done)):
        return False
    return not last.strip() or any(shape.accepts(kind) for kind in _possible(type, text[core:], start != core))


def _last_statement(text: str) -> tuple[int, int]:
    """Where the last top-level statement begins, and where behind its decorators; the text's end, if nowhere."""
    starts = [0]
    for line in text.split("\n"):
        starts.append(starts[-1] + len(line) + 1)
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
        words = CLAUSES if read < len(text) else {word[: len(token.string)] for word in CLAUSES}  # half-typed
        clause = first < len(text) and token.string in words
        if fresh and token.start[1] == 0 and not clause:
            first, core = (first if decorated else begin), begin
            decorated = token.string == "@"
        fresh = False
    rest = text[read:].lstrip()
    begin = len(text) - len(rest)
    if (
        rest and fresh and text[:begin].endswith("\n" if begin else "")
    ):  # a long string that is not closed is no token
        first, core, decorated = (first if decorated else begin), begin, False
    return first, (len(text) if decorated else core)


def _tokens(text: str) -> Iterator[tokenize.TokenInfo]:
    """The tokens up to where the text ends inside one, or inside brackets."""
    try:
        yield from tokenize.generate_tokens(io.StringIO(text, newline="\n").readline)
    except (tokenize.TokenError, SyntaxError):
        return


def _possible(type: BlockType, core: str, decorated: bool) -> set[str]:
    """The kinds that a statement may become which begins like `core`, behind its decorators."""
    core = core[_BLANK.match(core).end() :] if type in PROSE else core  # type: ignore[union-attr]
    if type in PROSE:
        return {"STRING"} if re.match(r"[rRuU]?(?:[\"']|$)", core) else set()
    word, rest = re.match(r"(\w*)(.*)", core, re.DOTALL).groups()  # type: ignore[union-attr]
    if rest:
        follows = re.sub(r"[\s\\]", "", rest[:99])[:3]
        function = word == "def" or (word == "async" and "def".startswith(follows))
    else:
        function = "def".startswith(word) or "async".startswith(word)
    found = {"FUNCTION"} if function else set()
    if decorated:
        return found
    if type in CALLBACK:
        call = f"self.{REGISTERS[type]}"
        plain = re.sub(r"[\s\\()]|#[^\n]*", "", core[:999])
        if call.startswith(plain) or plain.startswith(call):
            found.add("REGISTRATION")
    elif not rest or word not in NEVER:
        found |= {"VIEW", "SETUP"}
    return found
