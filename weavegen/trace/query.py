"""The BM25 queries that the model writes: `+wanted -unwanted type:'action' other words`."""

import re
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache

import lark

from weavegen.trace.blocks import BlockType

_WORD = re.compile(r"[^\W_]+")
MAX_QUERY_CHARS = 4_000
"""Longer queries are rejected. Sampled queries have a few hundred characters."""
MAX_WORD_CHARS = 200
"""Words are cut to this length, because a database index has a maximum entry size."""


@dataclass(frozen=True)
class Query:
    """A parsed query. Words are in lower case; a name in snake_case is several words."""

    plain: tuple[str, ...] = ()
    wanted: tuple[str, ...] = ()
    """A hit must have at least one of these words, and they count twice. A query that required all of them would find
    nothing, because the model is asked for a dozen words and marks most of them as wanted."""
    unwanted: tuple[str, ...] = ()
    """A hit must not have any of these words."""
    type: BlockType | None = None
    """Hits have this type. None: any type."""

    @property
    def words(self) -> list[str]:
        """The words that are scored."""
        return [*self.plain, *self.wanted, *self.wanted]


def words(text: str) -> list[str]:
    """The words of a text in the form that the index has."""
    return [word.lower()[:MAX_WORD_CHARS] for word in _WORD.findall(text)]


@cache
def _parser() -> lark.Lark:
    return lark.Lark.open("grammars/query.lark", rel_to=__file__, parser="lalr")


@lru_cache(maxsize=4096)  # every replay of a tick parses its queries again
def parse(text: str) -> Query | None:
    """Parse a query. Returns None if `text` is not a query or has no plain or wanted word."""
    if len(text) > MAX_QUERY_CHARS:
        return None
    try:
        tree = _parser().parse(text)
    except lark.exceptions.UnexpectedInput:
        return None
    terms: dict[str, list[str]] = {"plain": [], "wanted": [], "unwanted": []}
    type = None
    for term in tree.children:
        assert isinstance(term, lark.Tree)
        value = str(term.children[-1])
        if term.data in terms:
            terms[term.data] += words(value)
        else:
            name = value.removeprefix("type:").strip().strip("'\"")
            if name not in set(BlockType):
                return None
            type = BlockType(name)
    if not terms["plain"] and not terms["wanted"]:
        return None
    return Query(type=type, **{name: tuple(parts) for name, parts in terms.items()})


@lru_cache(maxsize=4096)  # as for `parse`
def restricted(text: str, type: BlockType) -> str:
    """The query restricted to blocks of one type. Each `type:` in the query is removed. Any other text stays none."""
    parts, end = [f"type:'{type}'"], 0
    with suppress(lark.exceptions.UnexpectedInput):
        for term in _parser().parse(text).scan_values(lambda one: isinstance(one, lark.Token) and one.type == "TYPE"):
            parts.append(text[end : term.start_pos].strip())
            end = term.end_pos or end
    return " ".join(filter(None, [*parts, text[end:].strip()]))
