-- The segments of the corpus index that no larger one has replaced.
select id from corpus_segments where retired_at is null
