-- Statistics over all words of the corpus index.
select documents, spread, average_rarity from corpus_statistics
