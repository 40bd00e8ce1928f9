"""The BM25 queries that the model writes: `+wanted -unwanted type:'action' other words`."""

import re
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

import lark

from weavegen.trace.blocks import BlockType

_WORD = re.compile(r"[^\W_]+")
MOST = 4_000
"""Characters of a query: more is none. A sampled one has some hundreds."""
LONGEST = 200
"""Characters that words are told apart by: what a database's index holds is bounded."""


@dataclass(frozen=True)
class Query:
    """A parsed query; its words are lower-cased, names in snake_case fall into their parts."""

    plain: tuple[str, ...] = ()
    wanted: tuple[str, ...] = ()
    """At least one of them must be in a hit, and they count twice: all of them would find nothing, since the
    model is asked for a dozen words and marks most of them."""
    unwanted: tuple[str, ...] = ()
    """None of them may be in a hit."""
    type: BlockType | None = None

    @property
    def words(self) -> list[str]:
        """What the score is computed for."""
        return [*self.plain, *self.wanted, *self.wanted]


def words(text: str) -> list[str]:
    """The words of a text, as the index has them."""
    return [word.lower()[:LONGEST] for word in _WORD.findall(text)]


@cache
def _parser() -> lark.Lark:
    return lark.Lark((Path(__file__).parent / "grammars" / "query.lark").read_text(), parser="lalr")


@lru_cache(maxsize=4096)  # every replay of a tick parses its queries again
def parse(text: str) -> Query | None:
    """The query that `text` is, or None where it is none, or looks for nothing."""
    if len(text) > MOST:
        return None
    try:
        tree = _parser().parse(text)
    except lark.exceptions.UnexpectedInput:
        return None
    found: dict[str, list[str]] = {"plain": [], "wanted": [], "unwanted": []}
    type = None
    for term in tree.children:
        assert isinstance(term, lark.Tree)
        last = str(term.children[-1])
        if term.data in found:
            found[term.data] += words(last)
        else:
            name = last.removeprefix("type:").strip().strip("'\"")
            if name not in set(BlockType):
                return None
            type = BlockType(name)
    if not found["plain"] and not found["wanted"]:
        return None
    return Query(type=type, **{name: tuple(parts) for name, parts in found.items()})


def restricted(text: str, type: BlockType) -> str:
    """The query, looking for blocks of one type only, whatever type it names itself."""
    return f"type:'{type}' " + re.sub(r"type:\s*\S+\s*", "", text)
