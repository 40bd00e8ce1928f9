"""Weave tree search (WEAVE section 8): a block grows piece by piece, and goes on where it promises most."""

import random

from weavegen.agents.program import Part, Tick
from weavegen.agents.sampling import BlockRequest, ScoredCandidate, sample
from weavegen.agents.tree import Node, Tree
from weavegen.kernel.steps import Prompt


def tree_search(t: Tick, wanted: BlockRequest, prompt: Prompt) -> Part[ScoredCandidate]:
    """Grow a tree of half-written blocks until its budget is spent or what is kept is finished; draw a leaf.

    A node that was cut off by its tokens counts by its promise while it may go on, and as it stands once the
    budget is spent: then it is a block that was cut off before its end.
    """
    s = wanted.s
    tree = Tree(random.Random(t.seed("tree")))
    texts: dict[Node, ScoredCandidate] = {}
    left, round = s.tree_nodes, 0
    while left and any(not leaf.done for leaf in tree.leaves()):
        round += 1
        in_round = min(s.tree_round, left)
        while in_round and (leaf := tree.best(s.tree_lookahead)) is not None:
            n = min(s.tree_children, in_round)
            found: list[ScoredCandidate] = yield from sample(
                t, wanted, prompt, n, round, of_tree=True, parent=texts.get(leaf)
            )
            logits = [(one.promise if one.cut else one.score) / s.tree_temperature for one in found]
            texts |= zip(tree.grow(leaf, logits, [not one.cut for one in found]), found, strict=True)
            in_round -= n
            left -= n
        if not left:
            for leaf in tree.leaves():
                if not leaf.done:
                    tree.judge(leaf, texts[leaf].score / s.tree_temperature)
        tree.prune(s.tree_beam)
    return texts[tree.take()]
