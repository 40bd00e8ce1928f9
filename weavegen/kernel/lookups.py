"""The tools that a `LookUp` step may name, with their arguments.

prompts/tools.toml says to the researcher's model what each of its tools does; agents/research.py makes the schemas of
its prompt from both. search/lookups/ implements the tools.
"""

import re

import msgspec


class Arguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of the tools' arguments."""


class ListDocuments(Arguments, frozen=True, kw_only=True):
    folder: str = ""


class SearchDocuments(Arguments, frozen=True, kw_only=True):
    query: str
    limit: int = 5


class GrepDocuments(Arguments, frozen=True, kw_only=True):
    pattern: str
    folder: str = ""


class ReadDocument(Arguments, frozen=True, kw_only=True):
    path: str
    first_line: int = 1
    lines: int = 100


class SearchCorpus(Arguments, frozen=True, kw_only=True):
    query: str
    limit: int = 5


class ReadBlocks(Arguments, frozen=True, kw_only=True):
    trace: int
    first: int = 0
    count: int = 10


class Sql(Arguments, frozen=True, kw_only=True):
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
