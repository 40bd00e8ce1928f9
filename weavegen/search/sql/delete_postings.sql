-- Deletes the postings of a segment of the corpus index.
delete from corpus_postings where segment = :segment
