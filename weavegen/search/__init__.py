"""BM25 search with rank-bm25 as the scorer: over one trace, a job, the whole corpus, or documents."""
