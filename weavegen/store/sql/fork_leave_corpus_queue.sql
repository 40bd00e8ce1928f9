-- Leaves a fork's copies out of the index of the whole corpus, which has these blocks already, from the other trace.
delete from corpus_queue where block_id in (select id from blocks where trace_id = :child)
