"""The value of a node, which node grows, which nodes are kept, and which leaf is chosen."""

import itertools
import math
import random
from collections import Counter
from typing import Any

import pytest

from tests.support.script import FAILURE, GOOD, T, Trials, drafts, odds_for, samples, tick, writes
from tests.support.world import Trace
from weavegen.agents.tree_search import Node, Tree, logsumexp
from weavegen.kernel.settings import settings
from weavegen.kernel.steps import Candidate, Executed, Sample

OPEN = Candidate(text='"""It goes on, ', finish_reason="length", tokens=1)


def grown(seed: int = 1) -> Tree:
    """A root with children of logits ln 1, ln 2 and ln 5. The last has two children: ln 1 and ln 4."""
    tree = Tree(random.Random(seed))
    children = tree.grow(tree.root, [0.0, math.log(2), math.log(5)], [False] * 3)
    tree.grow(children[2], [0.0, math.log(4)], [True, True])
    return tree


def searched(odds: float = 0.0, **s: Any) -> list[Sample]:
    """The nodes sampled for an expectation in which no node ever ends."""
    settings = {"search": "tree", "tree_first": 0, "max_tokens": 100_000, **s}
    trace = tick(s=settings, text=writes(T.EXPECTATION, OPEN), odds=odds_for(T.EXPECTATION, odds))
    return samples(trace, T.EXPECTATION)


# --------------------------------------------------------------------------------------- growth


def test_a_node_continues_its_parent() -> None:
    """A node continues its parent's text. The first nodes continue the prompt."""
    steps = searched(tree_nodes=12, tree_round=12, tree_children=4)
    assert [step.depth for step in steps][:2] == [1, 2]
    assert steps[0].parent is None
    for step in steps[1:]:
        assert step.parent is not None
        assert step.prompt == steps[0].prompt


def test_the_logit_is_the_score_over_the_temperature() -> None:
    """At temperature 0.2, a score of 1 is a logit of 5.

    So the search nearly always continues the better of two nodes.
    """
    chosen = Counter[tuple[int, int]]()
    for temperature in (0.2, 1e6):
        for seed in range(30):
            settings = {"search": "tree", "tree_first": 0, "tree_nodes": 4, "tree_round": 4, "tree_children": 2}
            settings |= {"tree_temperature": temperature, "types": {"orientation": {"tree_nodes": 1}}}
            trace = tick(s=settings, seed=seed, text=writes(T.EXPECTATION, OPEN), odds=lambda step, at: float(at))
            [_, second] = samples(trace, T.EXPECTATION)
            assert second.parent is not None
            chosen[int(temperature), second.parent[1]] += 1
    assert chosen[0, 1] >= 28
    assert 8 <= chosen[1000000, 1] <= 22


def test_priority_is_the_logit_plus_gumbel_noise() -> None:
    """So the leaf to expand is drawn by the softmax of the logits: here 2 of 3 times, not always the best."""
    first = Counter[int]()
    for seed in range(1500):
        tree = Tree(random.Random(seed))
        children = tree.grow(tree.root, [0.0, math.log(2)], [False, False])
        leaf = tree.best(3)
        assert leaf is not None
        assert leaf.priority == pytest.approx(leaf.logit + leaf.noise)
        assert leaf is max(children, key=lambda child: child.priority)
        first[children.index(leaf)] += 1
    assert first[1] / 1500 == pytest.approx(2 / 3, abs=0.04)


def test_only_leaves_within_the_lookahead_are_expanded() -> None:
    """Nodes at the depth of the lookahead are leaves, but wait for the next round."""
    tree = Tree(random.Random(1))
    node = tree.root
    for depth in range(3):
        assert tree.best(3) is node, depth
        [node] = tree.grow(node, [0.0], [False])
    assert tree.best(3) is None
    tree.prune(1)
    assert tree.best(3) is node
    steps = searched(tree_nodes=40, tree_round=40, tree_children=2)
    assert [max(step.depth for step in steps if step.round == number) for number in (1, 2)] == [3, 4]


def test_children_come_n_at_a_time_until_the_budget_of_the_round_is_spent() -> None:
    """A budget of 10 by 4 gives 4, 4 and the remaining 2; then the next round begins."""
    steps = searched(tree_nodes=20, tree_round=10, tree_children=4)
    assert [(step.round, step.n) for step in steps] == [(1, 4), (1, 4), (1, 2), (2, 4), (2, 4), (2, 2)]


def test_logits_propagate_upwards_as_logsumexp_of_siblings() -> None:
    """The logit of a node with children is the logsumexp of the children's, and so on up to the root."""
    tree = grown()
    assert [child.logit for child in tree.root.children] == pytest.approx([0.0, math.log(2), math.log(5)])
    assert tree.root.logit == pytest.approx(math.log(8))
    [child, _] = tree.root.children[2].children
    tree.set_logit(child, math.log(13))
    assert tree.root.children[2].logit == pytest.approx(math.log(17))
    assert tree.root.logit == pytest.approx(math.log(20))
    assert logsumexp([1000.0, 1000.0]) == pytest.approx(1000 + math.log(2))


# ------------------------------------------------------------------------------------ pruning


def test_phi_is_the_parents_phi_plus_the_log_softmax_of_the_logit() -> None:
    """Phi is the log-probability of a node: 1/8, 2/8 and 5/8; below the last node 1/5 and 4/5 of that."""
    tree = grown()
    tree.prune(3)
    assert [math.exp(child.phi) for child in tree.root.children] == pytest.approx([1 / 8, 2 / 8, 5 / 8])
    tree.prune(4)
    assert [math.exp(child.phi) for child in tree.root.children[2].children] == pytest.approx([1 / 8, 4 / 8])


def test_g_phi_is_drawn_from_the_root_down() -> None:
    """The greatest g_phi of a node's children equals the node's g_phi, at every level."""
    for seed in range(50):
        tree = grown(seed)
        tree.prune(3)
        tree.prune(4)
        for node in (tree.root, tree.root.children[2]):
            assert max(child.g_phi for child in node.children) == pytest.approx(node.g_phi)


def kept(tree: Tree, beam: int) -> list[int]:
    """Numbers of the leaves that two prunings keep, best first."""
    leaves = {leaf: number for number, leaf in enumerate(tree.leaves())}
    tree.prune(beam)
    tree.prune(beam)
    return [leaves[node] for node in tree.kept]


P = (1 / 8, 2 / 8, 1 / 8, 4 / 8)
"""Probabilities of the leaves."""


def test_pruning_keeps_an_exact_sample_without_replacement() -> None:
    """The first leaf is drawn by its probability, the second by its share of the remaining mass, across levels."""
    runs = 4000
    pairs = Counter(tuple(kept(grown(seed), 2)) for seed in range(runs))
    assert sum(pairs.values()) == runs
    for first, second in itertools.permutations(range(4), 2):
        exact = P[first] * P[second] / (1 - P[first])
        assert pairs[first, second] / runs == pytest.approx(exact, abs=4 * math.sqrt(exact / runs))


def test_pruning_keeps_as_many_leaves_as_the_beam_is_wide() -> None:
    """A pruned leaf does not grow and is not chosen."""
    tree = grown()
    tree.prune(2)
    assert len(tree.kept) == 2
    assert all(isinstance(node, Node) and node.parent is tree.root for node in tree.kept)
    allowed = {leaf for node in tree.kept for leaf in (node.children or [node])}
    assert set(tree.leaves()) == allowed
    assert all(tree.take() in allowed for _ in range(50))


# ------------------------------------------------------------------------- choice of the leaf


def test_the_leaf_is_chosen_by_phi_plus_gumbel_noise() -> None:
    """So each leaf is chosen with its probability."""
    runs, taken = 4000, Counter[int]()
    for seed in range(runs):
        tree = grown(seed)
        leaves = list(tree.leaves())
        taken[leaves.index(tree.take())] += 1
    for number, exact in enumerate(P):
        assert taken[number] / runs == pytest.approx(exact, abs=4 * math.sqrt(exact / runs))


# --------------------------------------------------------------------------------------- trials

BEGUN = Candidate(text="def action_go(self):\n    a =", finish_reason="length", tokens=1)
FAILED = Executed(error=FAILURE)


def tried(*results: Executed, **answers: Any) -> Trace:
    """One tick whose actions grow in trees. Trials of actions have these results."""
    s = {"search": "tree-execute", "tree_first": 0, "tree_children": 2, "tree_round": 2, "attempts": 1}
    s |= answers.pop("s", {})
    world = Trials(**{"odds": lambda step, at: float(-at), **answers})
    world.trials = list(results)
    return Trace(world, 1, settings(s)).run()


def written(trace: Trace) -> tuple[int, int] | None:
    """The place of the candidate that became the action."""
    [draft] = drafts(trace, T.ACTION)
    return draft.candidate


def test_a_leaf_that_succeeded_ends_the_search() -> None:
    trace = tried(FAILED, Executed())
    [step] = samples(trace, T.ACTION)
    assert step.n == 2
    place = written(trace)
    assert place is not None
    assert place[1] == 1


def test_a_leaf_that_was_not_tried_is_preferred_to_one_that_failed() -> None:
    trace = tried(FAILED, s={"trials": 1, "tree_nodes": 2, "tree_beam": 2})
    place = written(trace)
    assert place is not None
    assert place[1] == 1, "The one that failed has the higher score."


def test_the_value_of_a_leaf_is_its_outcome() -> None:
    """A finished leaf that failed does not end the search, whatever its score: the beam keeps an unfinished one."""

    def is_begun(step: Sample, at: int) -> bool:
        return (step.prompt.type, step.depth, at) == (T.ACTION, 1, 1)

    for seed in range(5):
        trace = tried(
            FAILED,
            Executed(),
            Executed(),
            seed=seed,
            s={"tree_nodes": 4},
            text=lambda step, at: BEGUN if is_begun(step, at) else GOOD[step.prompt.type],
            odds=lambda step, at: -3.0 if is_begun(step, at) else 3.0,
        )
        first, second = samples(trace, T.ACTION)
        assert first.parent is None
        assert second.parent is not None
        assert second.parent[1] == 1
