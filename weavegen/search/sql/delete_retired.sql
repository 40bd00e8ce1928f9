-- Deletes the segments that no query reads any more, with their postings.
with gone as (
  delete from corpus_segments where retired_at < clock_timestamp() - make_interval(secs => :kept) returning id
)
delete from corpus_postings where segment = any(array(select id from gone)) and exists (select from gone)
