"""The tools that a `LookUp` step may name: what each one does, and its arguments.

This is their only declaration. agents/research.py makes the tool schemas of a researcher's prompt from it, and
search/lookups/ implements the tools.
"""

import re

import msgspec


class Arguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of the tools' arguments. Docstrings of the research tools are part of the prompt."""


class ListDocuments(Arguments, frozen=True, kw_only=True):
    """List the documents that you were given, with their number of lines; of one folder if you name it."""

    folder: str = ""


class SearchDocuments(Arguments, frozen=True, kw_only=True):
    """Find the passages of the documents that bear on a query of plain words, best first (BM25).

    Each is given with its document and line numbers: read_document shows what stands around it.
    """

    query: str
    limit: int = 5


class GrepDocuments(Arguments, frozen=True, kw_only=True):
    """Find the lines of the documents that match a regular expression; (?i) before it ignores case."""

    pattern: str
    folder: str = ""


class ReadDocument(Arguments, frozen=True, kw_only=True):
    """Return lines of a document with their numbers, from `first_line` (1 is the first) on."""

    path: str
    first_line: int = 1
    lines: int = 100


class SearchCorpus(Arguments, frozen=True, kw_only=True):
    """Find blocks of earlier traces (what agents thought, did and checked, and their errors), best first.

    A query is words (BM25): one of those with + before it must be in a hit, none with - before it may be, and
    type:action finds actions alone. Each hit is given with its trace and index: read_blocks shows what stands
    around it.
    """

    query: str
    limit: int = 5


class ReadBlocks(Arguments, frozen=True, kw_only=True):
    """Return blocks of a trace as they stand in it, from block `first` on (0 is the first)."""

    trace: int
    first: int = 0
    count: int = 10


class Sql(Arguments, frozen=True, kw_only=True):
    """Run one SELECT on the PostgreSQL database of all traces and return at most 50 rows as a table.

    It only reads. Good to begin with: the view `corpus` (a row for each block, with its scores and how its
    trace ended) and the tables jobs, traces, ticks, blocks, candidates, evaluations, events. Which columns a
    table has: select column_name, data_type from information_schema.columns where table_name = 'traces'
    """

    query: str


def named(*tools: type[Arguments]) -> dict[str, type[Arguments]]:
    """Tools by name: that of the class, such as `read_document` of ReadDocument."""
    return {re.sub(r"\B([A-Z])", r"_\1", tool.__name__).lower(): tool for tool in tools}


RESEARCH_TOOLS = named(ListDocuments, SearchDocuments, GrepDocuments, ReadDocument, SearchCorpus, ReadBlocks, Sql)
"""The researcher's tools by name, in the order of the prompt."""


class ReadRequest(Arguments, frozen=True, kw_only=True):
    """The current text of a request."""

    number: int


class PastRequests(Arguments, frozen=True, kw_only=True):
    """Requests other than `number` and their outcomes, by BM25."""

    query: str
    number: int | None = None
    limit: int = 5


class Preferences(Arguments, frozen=True, kw_only=True):
    """What a user has said in requests other than `number`: by BM25 first, then the newest."""

    user: str
    query: str
    number: int | None = None
    limit: int = 5


class FindTools(Arguments, frozen=True, kw_only=True):
    """Tools of the library by BM25 over their names, signatures and descriptions."""

    query: str
    limit: int = 5


class ReadTool(Arguments, frozen=True, kw_only=True):
    """A tool of the library with its source, tests and evaluator."""

    name: str


LIBRARY_TOOLS = named(ReadRequest, PastRequests, Preferences, FindTools, ReadTool)
"""What the toolsmith's program looks up. No model reads these descriptions; the answers are JSON."""
LOOKUP_TOOLS = RESEARCH_TOOLS | LIBRARY_TOOLS
