-- The jobs of evaluations, by the names that `weavegen eval` and `weavegen improve` give them, with the jobs of their
-- delegates and of their forks.
with recursive held_out (id) as (
  select id from jobs where name ~ '^(eval|improve-[0-9a-f]{6} round \d+:) (selected|unaided)$'
  union
  select more.id from held_out cross join lateral (
    select f.job_id from traces t join traces f on f.fork_of = t.id where t.job_id = held_out.id
    union all
    select j.id from jobs j where j.called_by = held_out.id
  ) more (id)
)
select id from held_out order by id
