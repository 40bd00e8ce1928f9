-- The segments that queries read, the oldest blocks first (a merged segment is older than one that is not), and
-- the newest blocks of the queue.
select false as queued, level, id, documents from corpus_segments where retired_at is null
union all
select true, 0, block_id, 1 from (select block_id from corpus_queue order by block_id desc limit :max_queued) q
order by queued, level desc, id
