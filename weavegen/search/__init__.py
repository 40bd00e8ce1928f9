"""BM25, with rank-bm25 as the scorer: over what a trace has left behind, over a job, over the whole corpus."""

from weavegen.search.search import save, search

__all__ = ["save", "search"]
