delete from corpus_queue where block_id = any(array(
  select block_id from corpus_queue order by block_id limit :size
)) returning block_id
