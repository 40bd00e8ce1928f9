"""The look-up tools of a researcher, as the model reads them. weavegen/search/lookups implements them."""

from typing import Protocol

from weavegen.agents.dialogue import Tool


class Lookups(Protocol):
    """Tools that only read. Their docstrings are part of the prompt."""

    @staticmethod
    def list_documents(folder: str = "") -> str:
        """List the documents that you were given, with their number of lines; of one folder if you name it."""

    @staticmethod
    def search_documents(query: str, limit: int = 5) -> str:
        """Find the passages of the documents that bear on a query of plain words, best first (BM25).

        Each is given with its document and line numbers: read_document shows what stands around it.
        """

    @staticmethod
    def grep_documents(pattern: str, folder: str = "") -> str:
        """Find the lines of the documents that match a regular expression; (?i) before it ignores case."""

    @staticmethod
    def read_document(path: str, first_line: int = 1, lines: int = 100) -> str:
        """Return lines of a document with their numbers, from `first_line` (1 is the first) on."""

    @staticmethod
    def search_corpus(query: str, limit: int = 5) -> str:
        """Find blocks of earlier traces (what agents thought, did and checked, and their errors), best first.

        A query is words (BM25): one of those with + before it must be in a hit, none with - before it may be, and
        type:action finds actions alone. Each hit is given with its trace and index: read_blocks shows what stands
        around it.
        """

    @staticmethod
    def read_blocks(trace: int, first: int = 0, count: int = 10) -> str:
        """Return blocks of a trace as they stand in it, from block `first` on (0 is the first)."""

    @staticmethod
    def sql(query: str) -> str:
        """Run one SELECT on the PostgreSQL database of all traces and return at most 50 rows as a table.

        It only reads. Good to begin with: the view `corpus` (a row for each block, with its scores and how its
        trace ended) and the tables jobs, traces, ticks, blocks, candidates, evaluations, events. Which columns a
        table has: select column_name, data_type from information_schema.columns where table_name = 'traces'
        """


TOOLS = [
    Tool(Lookups.list_documents),
    Tool(Lookups.search_documents),
    Tool(Lookups.grep_documents),
    Tool(Lookups.read_document),
    Tool(Lookups.search_corpus),
    Tool(Lookups.read_blocks),
    Tool(Lookups.sql),
]
