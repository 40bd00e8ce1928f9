"""Tree search: a block grows node by node, and the most promising node is expanded. See docs/weave.md."""

import random

from weavegen.agents.program import Part, Tick
from weavegen.agents.sampling import BlockRequest, ScoredCandidate, sample
from weavegen.agents.tree import Node, Tree
from weavegen.kernel.steps import Prompt


def tree_search(t: Tick, request: BlockRequest, prompt: Prompt) -> Part[ScoredCandidate]:
    """Grow a tree of unfinished blocks until its budget is spent or all kept nodes are finished; draw a leaf.

    An unfinished node counts by its promise while it may be expanded. Once the budget is spent it counts as it
    stands: a block that was cut off before its end.
    """
    s = request.settings
    tree = Tree(random.Random(t.seed("tree")))
    candidates: dict[Node, ScoredCandidate] = {}
    budget, round = s.tree_nodes, 0
    while budget and any(not leaf.done for leaf in tree.leaves()):
        round += 1
        round_budget = min(s.tree_round, budget)
        while round_budget and (leaf := tree.best(s.tree_lookahead)) is not None:
            n = min(s.tree_children, round_budget)
            children: list[ScoredCandidate] = yield from sample(
                t, request, prompt, n, round, of_tree=True, parent=candidates.get(leaf)
            )
            logits = [
                (child.promise if child.unfinished else child.score) / s.tree_temperature for child in children
            ]
            nodes = tree.grow(leaf, logits, [not child.unfinished for child in children])
            candidates |= zip(nodes, children, strict=True)
            round_budget -= n
            budget -= n
        if not budget:
            for leaf in tree.leaves():
                if not leaf.done:
                    tree.judge(leaf, candidates[leaf].score / s.tree_temperature)
        tree.prune(s.tree_beam)
    return candidates[tree.take()]
