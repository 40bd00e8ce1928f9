-- Until the transaction ends: one core, so that traces are written at the same time; no shared memory, which is scarce
-- in containers; 128 MB of memory for a sort, and twice as much for a hash; no time limit; and no nested loops, because
-- views read whole tables, and sums over these, whose size PostgreSQL can't estimate.
select set_config('max_parallel_workers_per_gather', '0', true), set_config('work_mem', '128MB', true),
  set_config('statement_timeout', '0', true), set_config('enable_nestloop', 'off', true)
