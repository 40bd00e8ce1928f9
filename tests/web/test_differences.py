"""Differences between a candidate and its block. Pure."""

from hypothesis import given
from hypothesis import strategies as st

from weavegen.viewer.differences import MAX_COMPARED_CHARS, Difference, difference


def marked(found: Difference) -> str:
    def drawn(before: str, after: str) -> str:
        return before if before == after else f"[-{before}]" * bool(before) + f"[+{after}]" * bool(after)

    return "".join(drawn(before, after) for before, after in found.changes)


def test_similar_lines_differ_by_words() -> None:
    block = "def play(self):\n    x = self.move(3)\n    return x\n"
    candidate = "def play(self):\n    y = self.move(4)\n    return y\n\nself.add(play)\n"
    assert marked(difference(block, candidate)) == (
        "def play(self):\n    [-x][+y] = self.move([-3][+4])\n    return [-x][+y]\n[+\nself.add(play)\n]"
    )


def test_lines_with_little_in_common_are_shown_whole() -> None:
    found = difference("same\nthe corner is free\n", "same\nthe opponent plays badly today\n")
    assert marked(found) == "same\n[-the corner is free\n][+the opponent plays badly today\n]"


def test_spaces_and_signs_between_changes_are_marked_with_them() -> None:
    assert marked(difference("play(one, two) # of nine", "play(six, ten) # of nine")) == (
        "play([-one, two][+six, ten]) # of nine"
    )


def test_equal_texts() -> None:
    assert difference("a\n", "a\n").shared == 1
    assert difference("", "").shared == 1
    assert difference("", "a").shared == 0


def test_the_rest_after_an_unfinished_text_is_not_a_difference() -> None:
    assert marked(difference("x = 1\ny = 2\nz = 3\n", "x = 1\ny =", unfinished=True)) == "x = 1\ny ="


def test_long_texts_are_compared_up_to_a_limit() -> None:
    found = difference("a\n" * MAX_COMPARED_CHARS, "a\n" * MAX_COMPARED_CHARS + "b" * 50)
    assert found.uncompared == MAX_COMPARED_CHARS + 50
    assert sum(len(before) for before, _ in found.changes) == MAX_COMPARED_CHARS


texts = st.text(st.sampled_from("ab \n(,\t\r\u2028é"), max_size=120)


@given(texts, texts)
def test_the_changes_of_a_side_make_up_its_text(block: str, candidate: str) -> None:
    found = difference(block, candidate)
    assert "".join(before for before, _ in found.changes) == block
    assert "".join(after for _, after in found.changes) == candidate
    assert all(before or after for before, after in found.changes)
    assert 0 <= found.shared <= 1
    assert (found.shared == 1) == (block == candidate)
