"""Islands: the best program is never lost by adding, cutting or resetting; parents are drawn as documented."""

from collections import Counter

from hypothesis import example, given
from hypothesis import strategies as st

from weavegen.agents import islands
from weavegen.agents.islands import Island, Program


def program(number: int, score: float, length: int = 10, signature: tuple[float, ...] | None = None) -> Program:
    source = f"# {number}".ljust(length, ".")
    return Program(number, 1, score, signature if signature is not None else (score,), source)


programs = st.builds(program, st.integers(0, 999), st.floats(-100, 100), st.integers(10, 400))
several = st.lists(programs, min_size=1, max_size=12, unique_by=lambda item: item.number).map(tuple)


@given(several, several, st.integers(0, 3000))
def test_an_island_keeps_its_best_program_and_at_most_its_size_limit(island: Island, new: Island, room: int) -> None:
    after = islands.added(island, new, room)
    assert islands.best_of(after).score == islands.best_of((*island, *new)).score
    assert len(after) == 1 or sum(len(program.source) for program in after) <= room
    assert len({program.source for program in after}) == len(after)


@given(st.lists(several, min_size=1, max_size=8), st.integers(0, 99))
@example([(program(0, 0.0, length=11),), (program(0, 0.0, length=10),)], 0)
def test_a_reset_replaces_the_worse_half_and_keeps_the_best_program(before: list[Island], seed: int) -> None:
    after = islands.reset(before, seed)
    assert len(after) == len(before)
    assert islands.best_of([item for island in after for item in island]) == islands.best_of(
        [item for island in before for item in island]
    )
    changed = [at for at, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]
    assert len(changed) <= len(before) // 2
    bests = {islands.best_of(island).number for island in before}
    assert all(len(after[at]) == 1 and after[at][0].number in bests for at in changed)
    assert islands.reset(before, seed) == after


def test_a_reset_empties_the_worst() -> None:
    before = [(program(at, float(at)),) for at in range(4)]
    after = islands.reset(before, seed=3)
    assert after[2:] == tuple(before[2:])
    assert {item.score for island in after[:2] for item in island} <= {2.0, 3.0}


@given(several, st.integers(0, 99), st.integers(1, 4))
def test_parents_are_distinct_and_the_best_comes_last(island: Island, seed: int, most: int) -> None:
    shown = islands.parents(island, seed, most)
    assert 1 <= len(shown) <= min(most, len(island))
    assert [item.score for item in shown] == sorted(item.score for item in shown)
    assert len({item.number for item in shown}) == len(shown)
    assert islands.parents(island, seed, most) == shown


def test_parents_prefer_high_scores_and_among_equal_scores_short_programs() -> None:
    island = (program(1, 0.0), program(2, 5.0), program(3, 10.0, length=50), program(4, 10.0, length=500))
    drawn = Counter(islands.parents(island, seed, count=1)[0].number for seed in range(2000))
    assert drawn[3] > drawn[4] > drawn[2] > drawn[1]
    assert drawn[3] + drawn[4] > 1500


def test_two_parents_are_of_different_clusters_if_possible() -> None:
    island = (program(1, 1.0), program(2, 9.0), program(3, 9.0), program(4, 9.0))
    assert all({item.score for item in islands.parents(island, seed)} == {1.0, 9.0} for seed in range(50))
    alike = (program(1, 9.0), program(2, 9.0))
    assert len(islands.parents(alike, 1)) == 2


def test_equal_scores_with_different_signatures_are_different_clusters() -> None:
    island = (
        *(program(number, 1.0, signature=(2.0, 0.0)) for number in range(9)),
        program(9, 1.0, signature=(0.0, 2.0)),
    )
    drawn = Counter(islands.parents(island, seed, count=1)[0].number for seed in range(1000))
    assert 400 < drawn[9] < 600


def test_among_equal_scores_the_best_is_the_shortest_and_then_the_first() -> None:
    assert islands.best_of((program(1, 1.0, 30), program(2, 1.0, 20), program(3, 1.0, 20))).number == 2
