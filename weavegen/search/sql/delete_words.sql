-- Deletes the words of the corpus index.
delete from corpus_words
