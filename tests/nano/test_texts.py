"""Text to tokens and back, and the part of a long prompt that the model gets."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models

from tests.support.nano_model import make
from weavegen.errors import UsageError
from weavegen.kernel.window import BORDER, cut
from weavegen_nano.texts import Texts

BORDER_ID = 2


@given(text=st.text(max_size=200))
def test_tokens_are_their_texts_bytes(texts: Texts, text: str) -> None:
    ids = texts.encode(text, special=False)
    assert b"".join(map(texts.spell, ids)) == text.encode()
    assert texts.decode(ids) == text


def test_special_tokens_are_written_but_add_nothing_to_a_text(texts: Texts) -> None:
    ids = texts.encode("</s>It is so.", special=True)
    assert ids[:2] == [0, 1]
    assert texts.decode(ids) == "<s></s>It is so."
    assert b"".join(map(texts.spell, ids)) == b"It is so."
    assert texts.end == 1


def test_a_border_is_one_token(texts: Texts) -> None:
    ids = texts.encode(f"a\n{BORDER}action\n", special=False)
    assert ids.count(texts.border or -1) == 1
    assert texts.decode(ids) == f"a\n{BORDER}action\n"


def test_a_tokenizers_truncation_and_padding_do_not_count(tmp_path: Path) -> None:
    """A file may ask for them: it has the last options of the program that wrote it."""
    folder = make(tmp_path / "m")
    words = Tokenizer.from_file(str(folder / "tokenizer.json"))
    words.enable_truncation(4)
    words.enable_padding(length=16)
    words.save(str(folder / "tokenizer.json"))
    for text in ("a", "def action_find(self):"):
        assert Texts(folder).decode(Texts(folder).encode(text, special=False)) == text


@pytest.mark.parametrize("wrong", [-1, 10**6])
def test_unknown_ids_are_refused_by_texts(texts: Texts, wrong: int) -> None:
    with pytest.raises(IndexError, match=str(wrong)):
        texts.decode([5, wrong])


def test_a_tokenizer_that_is_not_byte_level_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(UsageError, match=r"tokenizer\.json"):
        Texts(tmp_path)
    words = Tokenizer(models.WordLevel({"zwölf ": 0}, unk_token=None))
    words.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(UsageError, match="not a byte-level token"):
        Texts(tmp_path)


blocks = st.lists(st.integers(1, 60), min_size=1, max_size=40)
"""Lengths of blocks."""


@given(blocks, st.integers(40, 400))
def test_a_cut_prompt_is_its_first_token_and_the_last_whole_blocks(lengths: list[int], room: int) -> None:
    whole = prompt(lengths)
    shown = cut(whole, room, BORDER_ID)
    assert len(shown) <= room
    if len(whole) <= room:
        assert shown == whole
        return
    assert shown[0] == whole[0]
    assert shown[1:] == whole[len(whole) - len(shown) + 1 :]
    starts = [at for at, token in enumerate(whole) if token == BORDER_ID]
    if any(len(whole) - at < room for at in starts):
        assert shown[1] == BORDER_ID


@given(blocks, st.integers(200, 400))
def test_growing_prompts_are_seldom_cut_at_another_place(lengths: list[int], room: int) -> None:
    """So that the beginning of the next prompt is cached, and no more than necessary is cut."""
    whole = prompt(lengths)
    places = []
    for end in range(room + 1, len(whole) + 1):
        shown = cut(whole[:end], room, BORDER_ID)
        places.append(end - len(shown))
        assert len(shown) >= room // 4
    assert len(set(places)) <= 2 + 2 * len(whole) // (room // 2)


def test_a_prompt_without_borders_keeps_its_end() -> None:
    whole = [0, *range(3, 503)]
    for border in (None, BORDER_ID):
        shown = cut(whole, 100, border)
        assert shown[0] == 0
        assert 50 <= len(shown) <= 100
        assert shown[1:] == whole[-len(shown) + 1 :]


def prompt(lengths: list[int]) -> list[int]:
    """`<s>`, then blocks of these lengths, each of which begins with the border token."""
    return [0, *(token for length in lengths for token in (BORDER_ID, *range(3, 2 + length)))]


def test_a_tokenizer_of_another_model_is_refused(tmp_path: Path) -> None:
    from weavegen_nano.server import NanoApi

    folder = make(tmp_path / "m")
    config = json.loads((folder / "config.json").read_text())
    make(folder, vocab_size=config["vocab_size"] - 1)
    with pytest.raises(UsageError, match="different models"):
        NanoApi(folder)
