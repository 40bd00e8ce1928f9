"""Where a sampled text ends among its tokens, and prompts that are composed of tokens."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulation import tokenizer
from weavegen.errors import TransientError
from weavegen.kernel.context import STOP
from weavegen.pool import client
from weavegen.pool.tokens import Text, Tokens, joined, whole_tokens

WORDS = ["de", "f a", "\n", "\n\n", " x", "end", "block", "#", "\n#", "st", "art", '"', "#end", "k\n", "é", "\ufffd"]


def ids(*words: str) -> list[int]:
    return [WORDS.index(word) for word in words]


def split(text: str, *words: str, stop: tuple[str, ...] | None = STOP) -> tuple[int, str] | None:
    return whole_tokens(ids(*words), text, stop, WORDS.__getitem__)


def test_the_stop_string_and_line_ends_are_not_part_of_the_text() -> None:
    assert split("def a\n", "de", "f a", "\n", "#", "end", "block") == (2, "")
    assert split("def a\n", "de", "f a", "\n#", "end", "block") == (2, "")
    assert split("def a\n\n\n", "de", "f a", "\n", "\n\n", "#end", "block") == (2, "")


def test_a_token_across_the_end_of_the_text_is_split() -> None:
    assert split("dek\n", "de", "k\n", "#", "end", "block") == (1, "k")


def test_a_text_that_ends_like_the_stop_string() -> None:
    assert split("deblock", "de", "block", "#", "end", "block") == (2, "")
    assert split("#end", "#", "end", "#", "end", "block") == (2, "")


def test_a_text_that_was_cut_off() -> None:
    assert split("def a", "de", "f a", stop=None) == (2, "")
    assert split("def a\n", "de", "f a", "\n", stop=None) == (2, "")
    assert split("dek\n", "de", "k\n", stop=None) == (1, "k")


def test_an_empty_text() -> None:
    assert split("", "#", "end", "block") == (0, "")
    assert split("\n\n", "\n\n", "#", "end", "block") == (0, "")


def test_tokens_that_do_not_match_the_text() -> None:
    assert split("def a", "de", "f a", "\n") is None  # it has ended, but with none of the stop strings
    assert split("de", "de", "\ufffd", "#", "end", "block") is None  # half a character, omitted from the text
    assert whole_tokens([], "", STOP, WORDS.__getitem__) is None


@given(st.text('ab \n"é#', max_size=40), st.sampled_from(STOP), st.text("k\n", max_size=2))
def test_tokens_and_remainder_give_the_text(text: str, stop: str, after: str) -> None:
    sampled = tokenizer.encode(text + stop)
    if any(word in text + stop[:-1] for word in STOP):
        return
    parts = whole_tokens(sampled, text, STOP, tokenizer.token_text)
    if parts is None:  # the last whole token is half a character: the text is tokenised again
        assert "é" in text
        return
    kept, over = parts
    assert tokenizer.decode(sampled[:kept]) + over == text.rstrip("\n")


def test_prompts_are_composed_of_pieces() -> None:
    one, two = Tokens.of([1, 2, 300]), Tokens.of([4])
    prompt = joined([one, Tokens.of([]), two])
    assert isinstance(prompt, Tokens)
    assert (prompt.ids, prompt.count) == ([1, 2, 300, 4], 4)
    assert (one.first(2).ids, one.first(9)) == ([1, 2], one)
    assert joined([Text("ab", 1), Text("cd", 1)]) == "abcd"
    assert Text("abcdef", 3).first(2) == Text("abcd", 2)
    with pytest.raises(TransientError, match="came or went"):
        joined([one, Text("ab", 1)])


@pytest.mark.parametrize("ids", [[], [7]])
def test_a_token_count_is_kept_with_the_tokens(ids: list[int]) -> None:
    assert (Tokens.of(ids).count, Tokens.of(ids).ids) == (len(ids), ids)


@pytest.mark.parametrize("field", ["text", "reasoning", "reasoning_content"])
def test_reasoning_is_read_from_either_field_of_the_servers_answer(field: str) -> None:
    choice = msgspec.convert({"index": 0, "finish_reason": "stop", field: "It is so."}, client.Choice)
    assert client.continuation(choice, ()).text == "It is so."
    both = msgspec.convert({"index": 0, "text": "Yes.", "reasoning": "Hm."}, client.Choice)
    assert client.continuation(both, ()).text == "Yes."


def test_characters_that_the_database_refuses_are_replaced() -> None:
    choice = msgspec.convert({"index": 0, "finish_reason": "stop", "text": "a\x00b\r\n\x0f"}, client.Choice)
    assert client.continuation(choice, ()).text == "a\ufffdb\r\n\x0f"
