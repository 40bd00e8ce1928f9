"""Everything that the documents point to exists: files, headings, pictures, code; README.md leads to each document."""

import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.docs.reading import DOCUMENTS, ROOT, code, headings, links, prose

FILE = re.compile(r"(?<![\w/.-])(?:bench|bootstraps|deploy|docs|scripts|tests|weavegen)/[\w/-]+\.\w+")
"""Matches anywhere in a sentence."""
PATH = re.compile(r"(?P<path>[\w.-]+(?:/[\w.-]+)+/?)(?:::(?P<test>\w+)|: (?P<name>\w+))?")
ENDINGS = (".css", ".html", ".json", ".lark", ".md", ".png", ".py", ".sh", ".sql", ".toml", ".txt", ".yaml")

every_document = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))


@every_document
def test_links_have_a_target(document: Path) -> None:
    for line, target in links(document):
        parts = urlsplit(target)
        if parts.scheme:
            assert parts.scheme == "https", (line, target)
            assert re.fullmatch(r"[\w-]+(\.[\w-]+)+", parts.netloc), (line, target)
            continue
        file = document.parent / parts.path if parts.path else document
        assert file.is_file(), (line, target)
        assert file.resolve().is_relative_to(ROOT), (line, target)
        if parts.fragment:
            assert parts.fragment in headings(file), (line, target)


@every_document
def test_files_that_are_named_exist(document: Path) -> None:
    for line, piece in prose(document):
        if piece.type in ("text", "code_inline"):
            for file in FILE.findall(piece.content):
                assert (ROOT / file).is_file(), (line, file)


@every_document
def test_code_that_is_named_exists(document: Path) -> None:
    for one in code(document):
        found = PATH.fullmatch(one.text.strip()) if one.language == "inline" else None
        if found is None or not found["path"].endswith((*ENDINGS, "/")):
            continue
        place = ROOT / found["path"]
        assert place.exists(), one
        if name := found["test"] or found["name"]:
            assert re.search(rf"\b{name}\b", place.read_text()), one


def test_every_document_is_reachable_from_the_readme() -> None:
    reached, ahead = set(), [ROOT / "README.md"]
    while ahead:
        document = ahead.pop()
        reached.add(document)
        for _, target in links(document):
            file = (document.parent / urlsplit(target).path).resolve()
            if file.suffix == ".md" and not urlsplit(target).scheme and file not in reached:
                ahead.append(file)
    assert set(DOCUMENTS) <= reached
