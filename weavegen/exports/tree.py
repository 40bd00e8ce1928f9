"""`tree`: all that the traces of a job read and sampled, as one tree of tokens. Every shared beginning is there once.

A node has consecutive tokens, and its parent's path has all tokens before them. A prompt is a path of the pieces of
which the server's prompt was made (docs/decisions/token-ids.md), and each candidate is a leaf below it. A conversation
is one path, in which the nodes that the model sampled have logprobs. A fork's path leaves its origin's at the cut.
`flat_rows` reads such an export as rows of single sequences.
"""

import hashlib
from array import array
from collections import ChainMap, Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq

from weavegen import sql
from weavegen.exports.completions import BATCH, UNKNOWN
from weavegen.exports.format import Key, Row, RowFormat, Source, declared
from weavegen.exports.read_prompts import Piece, PromptReader, integers, reals
from weavegen.exports.trajectories import NOT_RECORDED, Part, Tokens, conversations, parts_of
from weavegen.store.releases import batches
from weavegen.trace.blocks import MESSAGE

LOST = "token ids of candidates are not recorded: enqueue with --set tokens=all"
DEEP = "nodes of a tree search below its first level: the text above them was tokenised again, without a record"
SHARED_DEPTH = 2
"""Nodes of this many first levels (genesis and bootstrap, system and user) are shared by all traces."""

CANDIDATE, CONVERSATION = "candidate", "conversation"
OF_CANDIDATE = ("index", "score", "reward", "kept", "step_id", "candidate_id", "position")
DECLARED = declared("tree")


class Node(NamedTuple):
    """A node that later ones may continue."""

    id: int | None
    depth: int
    tokens: int
    """Of its whole path."""


ROOT = Node(None, 0, 0)


class Tree:
    """The tree of a split while it is written. It holds only what later nodes may continue."""

    def __init__(self, totals: Counter[str]) -> None:
        self.known: ChainMap[bytes, Node] = ChainMap({}, {})
        """Nodes that were read, by `name`: those of the trace that is being read, and those of others."""
        self.family = 0
        """The original of the trace being read, if it is a fork or a retry, directly or not. Deeper nodes are shared
        only among traces of one original, so that an export does not depend on the forks of other traces."""
        self._count, self._rows, self._totals = 0, list[Row](), totals

    def add(self, parent: Node, ids: list[int], **values: Any) -> Node:
        """A new child of a node. `values`: columns."""
        node = Node(self._count, parent.depth + 1, parent.tokens + len(ids))
        self._rows.append({"node_id": node.id, "parent_id": parent.id, "tokens": ids} | values)
        self._count += 1
        self._totals["tokens"] += len(ids)
        if "row" in values:
            self._totals.update(flat_rows=1, flat_tokens=node.tokens)
        return node

    def read(self, parent: Node, piece: Piece, **values: Any) -> Node:
        """The child of a node with the tokens of a piece of a prompt; a new one if there is none."""
        name = self.name(parent, piece.ids)
        if (node := self.known.get(name)) is None:
            node = self.known[name] = self.add(parent, piece.ids, kind=piece.kind, index=piece.at, **values)
        return node

    def taken(self, columns: Row) -> Iterator[Row]:
        """The new nodes with all columns of the schema."""
        rows, self._rows = self._rows, []
        return (columns | row for row in rows)

    def name(self, parent: Node, ids: list[int]) -> bytes:
        """The key by which a node is found again."""
        family = -1 if parent.depth < SHARED_DEPTH else self.family
        place = -1 if parent.id is None else parent.id
        return hashlib.blake2b(array("q", [family, place, *ids]), digest_size=16).digest()

    def end_trace(self, continued: bool) -> None:
        """Forget the nodes that no other trace continues. `continued`: whether it has forks or retries."""
        own, others = self.known.maps
        others.update({name: node for name, node in own.items() if continued or node.depth <= SHARED_DEPTH})
        own.clear()


def rows(source: Source, trace: int, keys: Iterator[Key]) -> Iterator[Row]:
    """The new nodes of a trace."""
    [about] = sql.run(source.conn, "exports/tree-trace", trace=trace).mappings()
    tree: Tree = source.kept.setdefault(source.split, Tree(source.totals))
    tree.family = sql.run(source.conn, "exports/root-trace", trace=trace, callers=False).one().id
    of_trace = {name: about[name] for name in ("trace_id", "fork_of", "job", "bootstrap")}
    columns = dict.fromkeys(DECLARED["schema"].names) | of_trace
    seen: set[int] = set()
    for conversation in conversations(source.conn, trace):
        seen |= add_conversation(source, tree, conversation, {name: about[name] for name in ("score", "reward")})
        yield from tree.taken(columns)
    reader = PromptReader(source.conn, trace)
    for batch in batches(sql.run(source.conn, "exports/tree-steps", trace=trace).scalars(), BATCH):
        reader.load(batch)
        for step in batch:
            found = sql.run(source.conn, "exports/tree-candidates", trace=trace, step=step).mappings()
            add_group(source, tree, reader, [row for row in found if row["candidate_id"] not in seen])
            yield from tree.taken(columns)
    tree.end_trace(about["continued"])


def add_conversation(source: Source, tree: Tree, conversation: list[Any], result: Row) -> set[int]:
    """Add a conversation, with the columns `result` at its end. Returns the candidates that are in it."""
    if (messages := parts_of(conversation)) is None:
        source.left_out[NOT_RECORDED] += 1
        return set()
    node, last, place = ROOT, conversation[-1], {"conversation": conversation[0].at}
    for row, parts in zip(conversation, messages, strict=True):
        before = node
        for ids, logprobs in parts:
            if logprobs is not None:
                about = {"step_id": row.step_id, "candidate_id": row.candidate_id, "index": row.at, "kept": True}
                end = {"row": CONVERSATION} | result if row is last else {}
                node = tree.add(node, ids, kind=CANDIDATE, logprobs=logprobs, **place, **about, **end)
            elif ids:
                node = tree.read(node, Piece(row.type if len(parts) == 1 else "prompt", row.at, ids), **place)
        if len(parts) > 1 and row is not last:
            tree.known[tree.name(before, integers(row.read))] = node  # later prompts, and forks, read it as one piece
    return {row.candidate_id for row in conversation if row.first == last.first}


def add_group(source: Source, tree: Tree, reader: PromptReader, candidates: list[Any]) -> None:
    """Add the candidates of a step below their prompt."""
    whole = [row for row in candidates if row["parent_id"] is None]
    recorded = [row for row in whole if row["token_ids"] is not None and row["logprobs"] is not None]
    source.left_out.update({DEEP: len(candidates) - len(whole), LOST: len(whole) - len(recorded)})
    if not recorded:
        return
    if (pieces := reader.token_pieces(recorded[0]["step_id"])) is None:
        source.left_out[UNKNOWN] += len(recorded)
        return
    node, place = ROOT, {"conversation": pieces[0].at if pieces[0].kind in MESSAGE else None}
    for piece in pieces:
        node = tree.read(node, piece, **place)
    for row in recorded:
        about = {name: row[name] for name in OF_CANDIDATE} | {"kind": CANDIDATE, "row": CANDIDATE} | place
        tree.add(node, integers(row["token_ids"]), logprobs=reals(row["logprobs"]), **about)


def tells(totals: Mapping[str, int]) -> str:
    """How much smaller the tree is than its flat rows."""
    flat, own = totals["flat_tokens"], totals["tokens"]
    more = flat / max(own, 1)
    return f"{own} tokens; as {totals['flat_rows']} flat rows they would be {flat}, {more:.1f} times as many"


def flat_rows(folder: Path, split: str = "train") -> Iterator[Row]:
    """The sequences of an export in the format `tree`: a row for each candidate, and one for each conversation.

    `tokens`, `masks` and `logprobs` are those of the formats atropos and trajectories: masks are -100 and logprobs 1.0
    for tokens that the model only read. The other columns are those of the last node.
    """
    table = pq.read_table(sorted(folder.glob(f"data/{split}-*.parquet")))
    tokens, logprobs = table.column("tokens").combine_chunks(), table.column("logprobs").combine_chunks()
    nodes = table.drop_columns(["tokens", "logprobs"]).to_pylist()
    same = {CANDIDATE: ("candidate_id",), CONVERSATION: ("trace_id", "conversation")}
    for end in nodes:
        if end["row"] is None:
            continue
        path = [end]
        while path[-1]["parent_id"] is not None:
            path.append(nodes[path[-1]["parent_id"]])
        parts: list[Part] = []
        for node in reversed(path):
            own = all(node[name] == end[name] for name in same[end["row"]])
            parts.append((tokens[node["node_id"]].as_py(), logprobs[node["node_id"]].as_py() if own else None))
        yield end | vars(Tokens.of(parts))


FORMAT = RowFormat(rows=rows, tells=tells, **DECLARED)
