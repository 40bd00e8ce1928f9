"""The project's documents as a reader uses them: commands, code, links, headings."""

import functools
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token
from typer.main import get_command

from weavegen import cli  # noqa: F401 - which puts all commands into the app
from weavegen.cli.app import app

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
PROGRAMS = {
    "apt-get", "celery", "docker", "export", "harbor", "kubectl", "make", "mmdebstrap", "pg_dump", "psql", "python",
    "redis-cli", "ssh", "sudo", "vllm", "weavegen",
}  # fmt: skip
"""Beginnings of lines that are for a shell."""
SHELL = re.compile(r"(\$ )?([A-Z_]+=\S* )*(\.venv/bin/)?(?P<program>[\w-]+) (?!.*─►)")
PIECE = re.compile(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"|(?P<comment>(?:^|(?<=\s))#[^\n]*)|(?P<end>&&|;|\n)|\\.|.", re.DOTALL)
"""Tokens of shell text: quoted text, a comment, the end of a command, or a character."""


@dataclass(frozen=True)
class Code:
    """A code block, or text between backticks."""

    path: str
    line: int
    language: str
    """The language that the document names; "" if it names none, "inline" between backticks."""
    text: str

    @property
    def is_shell(self) -> bool:
        """Whether the code is to be typed into a terminal."""
        first = next((line for line in self.text.splitlines() if not line.startswith("#")), "")
        found = SHELL.match(first + ("" if self.language == "inline" else " "))
        return self.language in ("", "inline") and found is not None and found["program"] in PROGRAMS


@dataclass(frozen=True)
class Command:
    """A command of a document, with the variables that the lines above it exported."""

    path: str
    line: int
    block: int | None
    """First line of its block. None: between backticks, or the only example of a help text."""
    text: str
    exports: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.text}"


def name(document: Path) -> str:
    return str(document.relative_to(ROOT))


@functools.cache
def tokens(document: Path) -> list[Token]:
    return MarkdownIt("commonmark").enable("table").parse(document.read_text())


def prose(document: Path) -> Iterator[tuple[int, Token]]:
    """Pieces of running text with their lines."""
    for token in tokens(document):
        if token.type == "inline":
            assert token.map is not None
            line = token.map[0] + 1
            for child in token.children or []:
                yield line, child
                line += child.type in ("softbreak", "hardbreak")


def code(document: Path) -> Iterator[Code]:
    for token in tokens(document):
        if token.type in ("code_block", "fence"):
            assert token.map is not None
            line = token.map[0] + (2 if token.type == "fence" else 1)
            yield Code(name(document), line, token.info.strip(), token.content)
    for line, piece in prose(document):
        if piece.type == "code_inline":
            yield Code(name(document), line, "inline", piece.content)


def commands(document: Path) -> Iterator[Command]:
    """All commands of the document in order: blocks, then text between backticks."""
    for one in code(document):
        if one.is_shell:
            yield from typed(one)


def typed(block: Code) -> Iterator[Command]:
    """The commands of a block. In a block that also shows output, commands follow a dollar sign."""
    text = block.text
    if text.startswith("$ "):
        text = "".join(line[2:] if line.startswith("$ ") else "\n" for line in text.splitlines(keepends=True))
    exports: list[str] = []
    begin, words = block.line, ""
    for piece in PIECE.finditer(text + "\n"):
        if piece["end"] is None:
            if not piece["comment"] and piece[0] != "\\\n" and not (piece[0] == " " and words.endswith(" ")):
                words += piece[0]
            continue
        if command := words.strip().removeprefix(".venv/bin/"):
            if command.startswith("export "):
                exports.append(command)
            else:
                yield Command(
                    block.path, begin, None if block.language == "inline" else block.line, command, tuple(exports)
                )
        begin, words = block.line + text.count("\n", 0, piece.end()), ""


def examples() -> Iterator[Command]:
    """The commands in the help texts of weavegen."""

    def below(command: Any, words: tuple[str, ...]) -> Iterator[Command]:
        for example in re.findall(r"(?m)^ *Example: (.+)$", command.help or ""):
            # Commands that belong together, like adding and removing a server, run together.
            yield Command(" ".join(["help of weavegen", *words[:-1]]), 0, 0 if words[1:] else None, example)
        for word, one in getattr(command, "commands", {}).items():
            yield from below(one, (*words, word))

    yield from below(get_command(app), ())


def headings(document: Path) -> set[str]:
    """Anchors of a document's headings, as GitHub creates them."""
    found: dict[str, int] = {}
    for opening, content in itertools.pairwise(tokens(document)):
        if opening.type == "heading_open":
            text = "".join(child.content for child in content.children or [] if child.type in ("text", "code_inline"))
            slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
            count = found.setdefault(slug, 0)
            found[slug] += 1
            if count:
                found[f"{slug}-{count}"] = 1
    return set(found)


def links(document: Path) -> Iterator[tuple[int, str]]:
    """Targets of a document's links and images, with their lines."""
    for line, piece in prose(document):
        target = piece.attrs.get("href" if piece.type == "link_open" else "src")
        if target is not None:
            yield line, str(target)
