-- The lowest level that has enough segments for a merge.
select level, array_agg(id order by id) as segments from corpus_segments
where retired_at is null and level < :last group by level having count(*) >= :factor order by level limit 1
