"""The tree of a tree search: which node to expand, which to keep, which leaf to take. Pure.

A node is a piece of text that continues its parent's. Its logit is its score over a temperature, or the logsumexp of
its children's logits once it has children. So each leaf has a probability, and an inner node the sum of the
probabilities of the leaves below it.

Pruning keeps k nodes, drawn without replacement with those probabilities, by stochastic beam search: phi is a
node's log-probability, g_phi that with Gumbel noise added, and the k greatest g_phi are kept. The noise is drawn
from the root down, so that the greatest g_phi among a node's children is the node's own: the draw at a deeper
level agrees with the one above it. (W. Kool, H. van Hoof, M. Welling: Stochastic Beams and Where to Find Them,
ICML 2019; `conditioned` is the numerically stable form of its appendix.)
"""

import math
import random
from collections.abc import Iterator, Sequence


class Node:
    """A piece of text, as the search sees it: a logit and a place in the tree."""

    __slots__ = ("children", "depth", "done", "g_phi", "logit", "noise", "parent", "phi")

    def __init__(self, parent: "Node | None", logit: float, noise: float, done: bool) -> None:
        self.parent = parent
        self.children: list[Node] = []
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.logit = logit
        self.noise = noise
        """Gumbel noise of its priority, drawn once."""
        self.done = done
        """It can't be expanded."""
        self.phi = 0.0
        """Log-probability, set when it may be kept."""
        self.g_phi = 0.0

    @property
    def priority(self) -> float:
        """Of two leaves, the one with the higher priority is expanded first."""
        return self.logit + self.noise

    def leaves(self, lookahead: float = math.inf) -> Iterator["Node"]:
        """The leaves below it that are less than `lookahead` nodes deeper; itself, if it is a leaf."""
        waiting = [self]
        while waiting:
            node = waiting.pop()
            if not node.children:
                yield node
            elif node.depth - self.depth < lookahead - 1:
                waiting += reversed(node.children)


class Tree:
    """A root, its descendants, and the nodes that the last pruning kept."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.root = Node(None, 0.0, 0.0, done=False)
        self.kept = [self.root]

    def leaves(self, lookahead: float = math.inf) -> Iterator[Node]:
        """Leaves below what was kept, less than `lookahead` nodes deeper, in the order in which they grew."""
        for node in self.kept:
            yield from node.leaves(lookahead)

    def best(self, lookahead: int) -> Node | None:
        """The leaf to expand next: the one of highest priority that is not done. None where there is none."""
        return max(
            (leaf for leaf in self.leaves(lookahead) if not leaf.done),
            key=lambda leaf: leaf.priority,
            default=None,
        )

    def grow(self, parent: Node, logits: Sequence[float], done: Sequence[bool]) -> list[Node]:
        """Children of a node that has none, in the order of their logits."""
        parent.children = [
            Node(parent, logit, gumbel(self.rng), over) for logit, over in zip(logits, done, strict=True)
        ]
        _pass_up(parent)
        return parent.children

    def judge(self, leaf: Node, logit: float) -> None:
        """Give a leaf another logit."""
        leaf.logit = logit
        if leaf.parent is not None:
            _pass_up(leaf.parent)

    def prune(self, beam: int) -> None:
        """Keep `beam` nodes: of the children of those kept before, or of those themselves that have none."""
        found: list[Node] = []
        for node in self.kept:
            spread(node)
            noisy = [child.phi + gumbel(self.rng) for child in node.children]
            for child, g_phi in zip(node.children, conditioned(noisy, node.g_phi), strict=True):
                child.g_phi = g_phi
            found += node.children or [node]
        self.kept = sorted(found, key=lambda node: node.g_phi, reverse=True)[:beam]

    def take(self) -> Node:
        """One of the leaves, drawn with their probabilities."""
        waiting, leaves = list(self.kept), []
        while waiting:
            node = waiting.pop()
            spread(node)
            waiting += node.children
            leaves += [] if node.children else [node]
        return max(leaves, key=lambda leaf: leaf.phi + gumbel(self.rng))


def _pass_up(node: Node | None) -> None:
    while node is not None:
        node.logit = logsumexp([child.logit for child in node.children])
        node = node.parent


def spread(node: Node) -> None:
    """Set the phi of a node's children: its own plus the log-softmax of their logits."""
    if node.children:
        total = logsumexp([child.logit for child in node.children])
        for child in node.children:
            child.phi = node.phi + child.logit - total


def conditioned(noisy: Sequence[float], most: float) -> list[float]:
    """Perturbed log-probabilities, given that the greatest of them is `most`.

    Of values G with greatest Z they become -ln(e^-most - e^-Z + e^-G). With v = most - G + ln(1 - e^(G - Z)) that
    is most - max(0, v) - ln(1 + e^-|v|), which neither overflows nor cancels.
    """
    greatest = max(noisy, default=0.0)
    found = []
    for value in noisy:
        v = most - value + _log1mexp(value - greatest)
        found.append(most - max(0.0, v) - math.log1p(math.exp(-abs(v))))
    return found


def _log1mexp(x: float) -> float:
    """ln(1 - e^x) for x <= 0."""
    if x >= 0:
        return -math.inf
    return math.log(-math.expm1(x)) if x > -math.log(2) else math.log1p(-math.exp(x))


def logsumexp(values: Sequence[float]) -> float:
    """ln of the sum of e^value; of none it is minus infinity, as that of a sum of zeros is."""
    top = max(values, default=-math.inf)
    if math.isinf(top):
        return top
    return top + math.log(sum(math.exp(value - top) for value in values))


def gumbel(rng: random.Random) -> float:
    """Standard Gumbel noise."""
    return -math.log(-math.log(rng.random() or 5e-324))
