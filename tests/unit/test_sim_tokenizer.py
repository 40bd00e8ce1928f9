import subprocess
import sys

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from simulation import tokenizer

PROSE = """The board shows an X in the corner and an O in the centre; the next move decides the game, because
whoever takes square seven then has two lines open. I will check the answer of the server before I go on."""


@given(st.text())
@example("<s> [INST] def action_play(self):\n    return 1\n#endblock\n")
@example("  \t\r\n\x00 üñ 😀 \u0661")
@example("YESTERDAYnoYes No")
@settings(deadline=None)
def test_round_trip(text: str) -> None:
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert all(0 <= number < tokenizer.SIZE for number in ids)
    assert tokenizer.decode_packed(tokenizer.packed(text)) == text
    assert tokenizer.unpack(tokenizer.packed(text)) == ids


def test_round_trip_across_chunks() -> None:
    text = PROSE * 40 + "é" * 9000  # several bytes a letter, so that a chunk may end inside a letter
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_ids_are_in_the_range_of_a_real_vocabulary() -> None:
    assert tokenizer.SIZE < 128_000


def test_length_of_a_token() -> None:
    assert 2.5 < len(PROSE) / len(tokenizer.encode(PROSE)) < 4.5


@pytest.mark.parametrize("word", ["Yes", "No", " Yes", " No", "yes", "no", "YES", "NO"])
def test_answers_are_single_tokens(word: str) -> None:
    assert tokenizer.encode(word) == [tokenizer.single(word)]
    assert tokenizer.token_text(tokenizer.single(word)) == word


def test_unknown_ids_are_refused() -> None:
    with pytest.raises(IndexError):
        tokenizer.decode([tokenizer.SIZE])
    with pytest.raises(IndexError):
        tokenizer.decode([-1])
    with pytest.raises(IndexError):
        tokenizer.decode([2**40])


def test_another_process_gives_the_same_ids() -> None:
    code = f"from simulation import tokenizer; import sys; sys.stdout.write(repr(tokenizer.encode({PROSE!r})))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == repr(tokenizer.encode(PROSE))
