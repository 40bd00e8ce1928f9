select word, documents from unnest(cast(:words as text[])) as w(word) cross join lateral (
  select documents from postings
  where trace_id = :trace and postings.word = w.word and segment < :segments order by segment desc limit 1
) p
