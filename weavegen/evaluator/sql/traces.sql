-- One row for each finished trace of job :job. A trace is a success if it returned and, at its last tick, every
-- evaluation of its task was true. Null: none was false, but one was not evaluated.
select t.id as trace, f.name as bootstrap, t.status, t.candidates, t.sampled_tokens,
  (select count(*) from sft_examples s where s.trace_id = t.id) as kept,
  case when t.ended_because = 'returned' then (
    select case
      when not coalesce(
        bool_and(e.error is null and e.value = 'true') filter (where e.cause is null), count(e.cause) > 0) then false
      when count(e.cause) = 0 then true
    end
    from evaluations e where e.trace_id = t.id and e.scope = 'task' and e.tick = t.ticks
  ) else false end as success,
  (select count(*) from candidates c join penalties p on p.candidate_id = c.id where c.trace_id = t.id) as linted,
  (select count(*) from candidates c join penalties p on p.candidate_id = c.id
    where c.trace_id = t.id and p.compiles) as legal,
  (select count(*) from blocks b where b.trace_id = t.id and b.ran is not null and b.tick > 0) as executed,
  (select count(*) from blocks b where b.trace_id = t.id and b.ran and b.tick > 0) as ran
from traces t join bootstraps f on f.id = t.bootstrap_id
where t.job_id = :job and t.status in ('ended', 'failed') order by t.number
