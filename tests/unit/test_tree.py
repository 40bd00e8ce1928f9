"""The tree alone: which node is expanded, how logits propagate upwards, and that pruning samples exactly."""

import itertools
import math
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weavegen.agents.tree_search import Node, Tree, conditioned, gumbel, logsumexp

SHAPE: dict[float, tuple[float, ...]] = {0.3: (0.0, 1.0), -0.5: (0.7, -1.0, 0.2), 1.2: ()}
"""Logits of a root's children, until they have children themselves, and of these."""


def known(seed: int) -> Tree:
    """A tree with known logits, whose leaves are five grandchildren and one child."""
    tree = Tree(random.Random(seed))
    for child, below in zip(tree.grow(tree.root, list(SHAPE), [False] * 3), SHAPE.values(), strict=True):
        if below:
            tree.grow(child, below, [True] * len(below))
    return tree


def odds() -> list[float]:
    """The probability of each leaf."""
    logits = [logit for top, below in SHAPE.items() for logit in below or (top,)]
    total = sum(map(math.exp, logits))
    return [math.exp(logit) / total for logit in logits]


def test_the_logit_of_an_inner_node_is_the_logsumexp_of_its_children() -> None:
    tree = known(1)
    first, second, third = tree.root.children
    assert first.logit == pytest.approx(math.log(1 + math.e))
    assert second.logit == pytest.approx(math.log(math.exp(0.7) + math.exp(-1) + math.exp(0.2)))
    assert third.logit == 1.2
    leaves = [leaf.logit for leaf in tree.leaves()]
    assert tree.root.logit == pytest.approx(math.log(sum(map(math.exp, leaves))))
    tree.set_logit(first.children[0], 2.0)
    assert first.logit == pytest.approx(math.log(math.exp(2) + math.e))
    assert tree.root.logit == pytest.approx(logsumexp([child.logit for child in tree.root.children]))


def test_the_best_open_leaf_within_the_lookahead_is_expanded() -> None:
    tree = Tree(random.Random(1))
    assert tree.best(1) is tree.root
    low, high, done = tree.grow(tree.root, [0.0, 50.0, 100.0], [False, False, True])
    assert tree.best(1) is None
    assert tree.best(2) is high
    below = tree.grow(high, [60.0, 70.0], [False, False])
    assert tree.best(2) is low
    assert tree.best(3) is below[1]
    assert list(tree.leaves()) == [low, *below, done]


def test_noise_sometimes_expands_the_second_best_leaf() -> None:
    chosen = Counter[int]()
    for seed in range(2000):
        tree = Tree(random.Random(seed))
        children = tree.grow(tree.root, [0.0, math.log(3)], [False, False])
        leaf = tree.best(2)
        assert leaf is not None
        chosen[children.index(leaf)] += 1
    assert chosen[1] / 2000 == pytest.approx(3 / 4, abs=0.03)


def test_pruning_samples_without_replacement() -> None:
    p, runs = odds(), 20_000
    seen = Counter[frozenset[int]]()
    first = Counter[int]()
    for seed in range(runs):
        tree = known(seed)
        numbers = {leaf: number for number, leaf in enumerate(tree.leaves())}
        for _ in range(2):  # the depth of the tree
            tree.prune(2)
        seen[frozenset(numbers[node] for node in tree.kept)] += 1
        first[numbers[tree.kept[0]]] += 1
    for one, other in itertools.combinations(range(len(p)), 2):
        exact = p[one] * p[other] / (1 - p[one]) + p[other] * p[one] / (1 - p[other])
        assert seen[frozenset((one, other))] / runs == pytest.approx(exact, abs=4 * math.sqrt(exact / runs))
    for number, exact in enumerate(p):
        assert first[number] / runs == pytest.approx(exact, abs=4 * math.sqrt(exact / runs))


def test_a_leaf_is_chosen_with_its_probability() -> None:
    p, runs = odds(), 10_000
    taken = Counter[int]()
    for seed in range(runs):
        tree = known(seed)
        leaves = list(tree.leaves())
        taken[leaves.index(tree.take())] += 1
    for number, exact in enumerate(p):
        assert taken[number] / runs == pytest.approx(exact, abs=4 * math.sqrt(exact / runs))


def test_pruning_goes_down_one_level_and_keeps_leaves_without_children() -> None:
    tree = known(3)
    tree.prune(3)
    assert set(tree.kept) == set(tree.root.children)
    tree.prune(10)
    assert len(tree.kept) == 6
    assert {node.depth for node in tree.kept} == {1, 2}
    tree.prune(1)
    [only] = tree.kept
    assert list(tree.leaves()) == [only]
    assert tree.take() is only


def test_phi_is_the_log_probability_and_g_phi_of_the_best_child_is_its_parents() -> None:
    tree = known(5)
    tree.prune(3)
    tree.prune(6)
    for node in tree.kept:
        parent = node.parent
        assert isinstance(parent, Node)
        if node.depth == 2:
            assert max(child.g_phi for child in parent.children) == pytest.approx(parent.g_phi)
    assert sum(math.exp(node.phi) for node in tree.kept) == pytest.approx(1.0)
    assert sorted(math.exp(node.phi) for node in tree.kept) == pytest.approx(sorted(odds()))


@given(st.lists(st.floats(-700, 700), min_size=1, max_size=8), st.floats(-700, 700))
def test_conditioning_keeps_the_order_and_moves_the_maximum(noisy: list[float], most: float) -> None:
    result = conditioned(noisy, most)
    assert all(math.isfinite(value) for value in result)
    assert max(result) == pytest.approx(most)
    best = result[noisy.index(max(noisy))]
    assert best == pytest.approx(most)
    for (noise_a, a), (noise_b, b) in itertools.combinations(zip(noisy, result, strict=True), 2):
        assert (a <= b + 1e-9) if noise_a <= noise_b else (a >= b - 1e-9)


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=6, unique=True), st.floats(-5, 5))
def test_the_stable_formula_equals_the_plain_formula(noisy: list[float], most: float) -> None:
    greatest = max(noisy)
    plain = [
        -math.log(math.exp(-most) - math.exp(-greatest) + math.exp(-value))
        for value in noisy
        if greatest - value > 1e-3
    ]
    stable = [
        shifted for shifted, value in zip(conditioned(noisy, most), noisy, strict=True) if greatest - value > 1e-3
    ]
    assert stable == pytest.approx(plain, abs=1e-6)


def test_gumbel_noise_has_its_mean() -> None:
    rng = random.Random(1)
    assert sum(gumbel(rng) for _ in range(20_000)) / 20_000 == pytest.approx(0.5772, abs=0.03)
