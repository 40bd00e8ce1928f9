"""Folders read as documents, and the passages of documents. Real files, no services."""

import os
from pathlib import Path

import pytest

from weavegen.engine import document_folder
from weavegen.engine.document_folder import read_folder
from weavegen.errors import UsageError
from weavegen.search.lookups.documents import normal, postgres_pattern
from weavegen.search.passages import MAX_PASSAGE_CHARS, MIN_PASSAGE_CHARS, Passages, split
from weavegen.store.documents import lines


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "papers"
    (root / "2024" / ".git").mkdir(parents=True)
    (root / "b.md").write_bytes(b"\xef\xbb\xbfone\r\ntwo\n")
    (root / "2024" / "a.txt").write_text("Grüße")
    (root / "2024" / ".git" / "config").write_text("hidden")
    (root / ".env").write_text("hidden")
    (root / "empty.md").write_text("")
    return root


def test_text_files_are_read_with_their_paths(folder: Path) -> None:
    documents = read_folder(folder)
    assert documents == {"2024/a.txt": "Grüße", "b.md": "one\ntwo\n", "empty.md": ""}
    assert list(documents) == sorted(documents)


def test_files_that_are_not_text_are_skipped(folder: Path) -> None:
    texts = read_folder(folder)
    (folder / "figure.png").write_bytes(b"\x89PNG\0\0")
    (folder / "latin.txt").write_bytes("Grüße".encode("latin-1"))
    (folder / "large.bin").write_bytes(b"\0" * (document_folder.MAX_FILE_BYTES + 10))
    os.mkfifo(folder / "pipe")
    (folder / "two\nlines").write_text("x")
    assert read_folder(folder) == texts


def test_links_out_of_the_folder_are_never_followed(folder: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key.txt").write_text("hidden")
    (folder / "key.txt").symlink_to(secret / "key.txt")
    (folder / "up.txt").symlink_to("../secret/key.txt")
    (folder / "all").symlink_to(secret)
    (folder / "nowhere").symlink_to("nothing")
    (folder / "loop").symlink_to("loop")
    (folder / "inside.md").symlink_to("b.md")
    texts = read_folder(folder)
    assert "hidden" not in texts.values()
    assert texts.keys() == {"2024/a.txt", "b.md", "empty.md", "inside.md"}
    assert texts["inside.md"] == "one\ntwo\n"


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [("MAX_FILES", 2, "more than 2 files"), ("MAX_FOLDER_BYTES", 10, "more than 0 MB of text")],
)
def test_limits(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: int, complaint: str) -> None:
    monkeypatch.setattr(document_folder, name, value)
    with pytest.raises(UsageError, match=complaint):
        read_folder(folder)


def test_a_text_that_is_too_large_is_refused(folder: Path) -> None:
    (folder / "long.txt").write_text("é" * (document_folder.MAX_FILE_BYTES // 2))
    assert len(read_folder(folder)["long.txt"]) == document_folder.MAX_FILE_BYTES // 2
    (folder / "long.txt").write_text("x" + "é" * (document_folder.MAX_FILE_BYTES // 2))
    with pytest.raises(UsageError, match=r"long\.txt is larger than 1 MB"):
        read_folder(folder)


@pytest.mark.parametrize("name", ["nothing", "papers/b.md", "papers/2024/.git/config", "\0"])
def test_a_path_that_is_not_a_folder_is_refused(folder: Path, name: str) -> None:
    with pytest.raises(UsageError, match="give the path of a folder"):
        read_folder(f"{folder.parent}/{name}")


def test_a_folder_without_text(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no text files"):
        read_folder(tmp_path)


def test_lines() -> None:
    assert lines("") == []
    assert lines("a") == ["a"]
    assert lines("a\n") == ["a"]
    assert lines("a\n\nb\u2028c") == ["a", "", "b\u2028c"]


def test_paths() -> None:
    for path in ("a/b.md", "/a/b.md", "./a/b.md", "a//b.md", "a/../a/b.md", " a/b.md "):
        assert normal(path) == "a/b.md"
    for path in ("", "/", ".", "..", "../.."):
        assert normal(path) == ""
    assert normal("../../etc/passwd") == "etc/passwd"


def test_patterns_become_patterns_of_the_database() -> None:
    assert postgres_pattern(r"\bword\b \\b \d\. [a-z]\B") == r"\yword\y \\b \d\. [a-z]\Y"


def test_passages_are_whole_paragraphs_and_cover_all_lines() -> None:
    paragraph = "word " * 40 + "\n"
    text = "\n".join(paragraph for _ in range(30)) + "line " * 50 + "\n" * 3 + "z\n" * 3_000
    passages = list(split("a", text))
    covered = [number for passage, _ in passages for number in range(passage.first_line, passage.last_line + 1)]
    assert covered == [number for number, line in enumerate(lines(text), 1) if number in set(covered)]
    assert all(line.strip() for number, line in enumerate(lines(text), 1) if number not in set(covered)) is True
    for passage, body in passages:
        assert body == "\n".join(lines(text)[passage.first_line - 1 : passage.last_line])
        assert len(body) <= MAX_PASSAGE_CHARS + 300
    assert all(len(body) >= MIN_PASSAGE_CHARS for _, body in passages[:-1])
    assert list(split("a", "")) == []
    assert list(split("a", "\n\n \n")) == []


class TestSearch:
    def test_the_best_passage_comes_first(self) -> None:
        texts = {f"{name}.md": f"The {name} burns with oil." for name in ("lantern", "candle", "torch")}
        texts["long.md"] = "The lantern is named here among very many other things. " + "word " * 100
        hits = Passages(texts.items()).search("a lantern", 3)
        assert [passage.path for passage, _ in hits] == ["lantern.md", "long.md"]
        assert hits[0][1] > hits[1][1] > 0

    def test_a_word_that_most_passages_contain_still_finds_them(self) -> None:
        only = Passages([("a.md", "oil")])
        assert [passage.path for passage, _ in only.search("oil", 5)] == ["a.md"]
        assert only.search("zeppelin", 5) == []
        assert only.search("?!", 5) == []
        assert Passages([]).search("oil", 5) == []

    def test_passages_without_words_are_no_hits(self) -> None:
        assert Passages([("a.md", "\u2014 \u2014 \u2014")]).search("oil", 5) == []
        [(hit, _)] = Passages([("a.md", "---"), ("b.md", "oil")]).search("oil", 5)
        assert hit.path == "b.md"

    def test_many_passages(self) -> None:
        texts = [(f"{number}.md", "oil " * (number % 7) + f"number{number}") for number in range(500)]
        passages = Passages(texts)
        assert len(passages.search("oil", 20)) == 20
        [(first, _), *_] = passages.search("number321 oil", 5)
        assert first.path == "321.md"
        assert passages.bytes > 1000
