-- The programs of a search, by number.
select number, generation, island, parents, score, error, source from programs where trace_id = :trace order by number
