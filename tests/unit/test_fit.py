"""A context is cut to the model's length in such a way that prompts keep their beginning."""

from hypothesis import given
from hypothesis import strategies as st

from weavegen.kernel.context import fit

tokens = st.integers(0, 2000)


def test_nothing_is_cut_if_everything_fits() -> None:
    assert fit([100, 200], [50] * 20, 750, 8000) == ([100, 200], [50] * 20)


def test_the_bootstrap_loses_its_end() -> None:
    assert fit([100, 9000], [50], 150, 8000) == ([100, 3900], [50])


def test_a_long_genesis_leaves_the_bootstrap_its_share() -> None:
    assert fit([3000, 1500], [50], 150, 4000) == ([1000, 1000], [50])  # with its beginning, which says what the task is
    assert fit([3000, 400], [50], 150, 4000) == ([1600, 400], [50])


def test_the_newest_block_stays_but_may_lose_its_end() -> None:
    assert fit([100, 100], [50, 9000], 150, 2000) == ([100, 100], [0, 2000 - 200 - 250])


@given(st.lists(tokens, max_size=2), st.lists(tokens, max_size=80), st.integers(0, 600), st.integers(1300, 20_000))
def test_the_result_always_fits(pinned: list[int], tail: list[int], asking: int, room: int) -> None:
    kept, left = fit(pinned, tail, asking, room)
    assert sum(kept) + sum(left) + asking <= room
    assert len(left) == len(tail)
    first = next((number for number, tokens in enumerate(left) if tokens), len(tail))
    assert left[first:-1] == tail[first:-1]  # the oldest blocks are left out, and all later ones stay
    if sum(pinned) <= room // 2 and sum(tail) + max(asking, room // 8) <= room // 2:
        assert left == tail


def test_the_beginning_stays_the_same_for_many_blocks() -> None:
    sizes = [150 + 37 * number % 300 for number in range(400)]
    firsts = []
    for count in range(100, 400):
        _, left = fit([500, 1500], sizes[:count], 200 + 500 * (count % 4), 16_000)
        firsts.append(next(number for number, tokens in enumerate(left) if tokens))
    assert firsts == sorted(firsts)
    assert len(set(firsts)) < len(firsts) / 8
    assert firsts[-1] > 330
