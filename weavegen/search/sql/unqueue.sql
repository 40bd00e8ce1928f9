delete from corpus_queue where block_id in (select id from indexed_anew where place < :done)
