select
  (select index from blocks where trace_id = :trace and index < :index and candidate_id is not null
    order by index desc limit 1) as before,
  (select index from blocks where trace_id = :trace and index > :index and candidate_id is not null
    order by index limit 1) as after
