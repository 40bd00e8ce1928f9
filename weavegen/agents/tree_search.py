"""Tree search: a block grows node by node, and the most promising leaf is expanded next (docs/weave.md).

A node is a piece of text that continues its parent's text. Its logit is its score over a temperature, or the
logsumexp of its children's logits once it has children. So each leaf has a probability, and an inner node has the
sum of the probabilities of the leaves below it.

Pruning keeps k nodes, drawn without replacement with those probabilities, by stochastic beam search: phi is a node's
log-probability, g_phi is phi plus Gumbel noise, and the k nodes with the greatest g_phi are kept. The noise is
drawn from the root down, so that the greatest g_phi among a node's children equals the node's own g_phi: the draw at
a deeper level agrees with the draw above it. (W. Kool, H. van Hoof, M. Welling: Stochastic Beams and Where to Find
Them, ICML 2019; `conditioned` is the numerically stable form of its appendix.)
"""

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from weavegen.agents.program import Part, Tick
from weavegen.agents.sampling import BlockRequest, ScoredCandidate, drawn, sample, try_best
from weavegen.kernel.steps import Prompt


def tree_search(t: Tick, request: BlockRequest, prompt: Prompt) -> Part[ScoredCandidate]:
    """Grow a tree of unfinished blocks until its budget is spent or all kept nodes are finished. Draw a leaf.

    While a node may be expanded, its logit comes from its promise. Once the budget is spent, the logit of an
    unfinished node comes from its score: the node is then a block that was cut off before its end. If blocks of this
    type are tried, the best finished leaves of each round are. Their logits then come from their outcomes, and one that
    succeeded ends the search. The draw is among those that got furthest.
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
            logits = [(child.promise if child.unfinished else child.score) / s.tree_temperature for child in children]
            nodes = tree.grow(leaf, logits, [not child.unfinished for child in children])
            candidates |= zip(nodes, children, strict=True)
            round_budget -= n
            budget -= n
        if not budget:
            for leaf in tree.leaves():
                if not leaf.done:
                    tree.set_logit(leaf, candidates[leaf].score / s.tree_temperature)
        whole = [leaf for leaf in tree.leaves() if (leaf.done or not budget) and candidates[leaf].trial is None]
        tried = yield from try_best(t, request, [candidates[leaf] for leaf in whole])
        candidates |= zip(whole, tried, strict=True)
        for leaf in whole:
            if (one := candidates[leaf]).ran is not None:  # the outcome weighs more than scores and penalties can
                tree.set_logit(leaf, (one.score + 100.0 * (one.achieved - 1.0)) / s.tree_temperature)
        if any(one.succeeded(t.subagent) for one in tried):
            break
        tree.prune(s.tree_beam)
    leaves = [candidates[leaf] for leaf in tree.leaves()]
    return candidates[tree.take()] if all(one.ran is None for one in leaves) else drawn(t, leaves)


@dataclass(eq=False, slots=True)
class Node:
    """A node of the tree."""

    parent: "Node | None"
    logit: float
    noise: float
    """Gumbel noise of the priority, drawn once."""
    done: bool
    """Whether the text is finished, so that the node can't be expanded."""
    depth: int = 0
    """Number of nodes above it."""
    children: "list[Node]" = field(default_factory=list)
    phi: float = 0.0
    """Log-probability, set by `spread`."""
    g_phi: float = 0.0

    @property
    def priority(self) -> float:
        """The leaf with the highest priority is expanded first."""
        return self.logit + self.noise


class Tree:
    """A root, its descendants, and the nodes that the last pruning kept."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.root = Node(None, 0.0, 0.0, done=False)
        self.kept = [self.root]

    def leaves(self, lookahead: float = math.inf) -> Iterator[Node]:
        """The leaves of the kept nodes, less than `lookahead` nodes deeper, in the order in which they grew."""
        for kept in self.kept:
            waiting = [kept]
            while waiting:
                node = waiting.pop()
                if not node.children:  # also a kept node itself
                    yield node
                elif node.depth - kept.depth < lookahead - 1:
                    waiting += reversed(node.children)

    def best(self, lookahead: int) -> Node | None:
        """The leaf to expand next: of the unfinished leaves, the leaf of highest priority. None: all are finished."""
        unfinished = (leaf for leaf in self.leaves(lookahead) if not leaf.done)
        return max(unfinished, key=lambda leaf: leaf.priority, default=None)

    def grow(self, parent: Node, logits: Sequence[float], done: Sequence[bool]) -> list[Node]:
        """Give a leaf children, one per logit. Returns them in the order of the logits."""
        parent.children = [
            Node(parent, logit, gumbel(self.rng), finished, parent.depth + 1)
            for logit, finished in zip(logits, done, strict=True)
        ]
        _update_logits(parent)
        return parent.children

    def set_logit(self, leaf: Node, logit: float) -> None:
        """Give a leaf another logit."""
        leaf.logit = logit
        _update_logits(leaf.parent)

    def prune(self, beam: int) -> None:
        """Keep `beam` of the kept nodes' children. A kept node without children competes itself."""
        candidates: list[Node] = []
        for node in self.kept:
            spread(node)
            noisy = [child.phi + gumbel(self.rng) for child in node.children]
            for child, g_phi in zip(node.children, conditioned(noisy, node.g_phi), strict=True):
                child.g_phi = g_phi
            candidates += node.children or [node]
        self.kept = sorted(candidates, key=lambda node: node.g_phi, reverse=True)[:beam]

    def take(self) -> Node:
        """Draw a leaf by the leaves' probabilities."""
        waiting, leaves = list(self.kept), []
        while waiting:
            node = waiting.pop()
            spread(node)
            waiting += node.children
            leaves += [] if node.children else [node]
        return max(leaves, key=lambda leaf: leaf.phi + gumbel(self.rng))


def _update_logits(node: Node | None) -> None:
    """Compute the logits of a node and its ancestors from their children's."""
    while node is not None:
        node.logit = logsumexp([child.logit for child in node.children])
        node = node.parent


def spread(node: Node) -> None:
    """Set the phi of a node's children: the node's phi plus the log-softmax of the children's logits."""
    total = logsumexp([child.logit for child in node.children])
    for child in node.children:
        child.phi = node.phi + child.logit - total


def conditioned(noisy: Sequence[float], most: float) -> list[float]:
    """Perturbed log-probabilities, under the condition that the greatest of them is `most`.

    A value G, with Z the greatest of all values, becomes -ln(e^-most - e^-Z + e^-G). With v = most - G + ln(1 -
    e^(G - Z)) this equals most - max(0, v) - ln(1 + e^-|v|), which neither overflows nor cancels.
    """
    greatest = max(noisy, default=0.0)
    shifts = (most - value + _log1mexp(value - greatest) for value in noisy)
    return [most - max(0.0, v) - math.log1p(math.exp(-abs(v))) for v in shifts]


def _log1mexp(x: float) -> float:
    """ln(1 - e^x) for x <= 0."""
    if x >= 0:
        return -math.inf
    return math.log(-math.expm1(x)) if x > -math.log(2) else math.log1p(-math.exp(x))


def logsumexp(values: Sequence[float]) -> float:
    """ln of the sum of e^value. Without values: minus infinity."""
    top = max(values, default=-math.inf)
    if math.isinf(top):
        return top
    return top + math.log(sum(math.exp(value - top) for value in values))


def gumbel(rng: random.Random) -> float:
    """Standard Gumbel noise."""
    return -math.log(-math.log(rng.random() or 5e-324))
