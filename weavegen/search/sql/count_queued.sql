-- The number of queued blocks, up to a limit.
select count(*) from (select from corpus_queue limit :limit) q
