-- One row for each finished trace of job :job; if a trace was retried, only the last try counts. A task without
-- evaluations has no success, which is null.
select t.id as trace, f.name as bootstrap, t.status, t.candidates, t.sampled_tokens,
  (select count(*) from sft_examples s where s.trace_id = t.id) as kept,
  {store/known_success} as success,
  (select count(*) from candidates c join penalties p on p.candidate_id = c.id where c.trace_id = t.id) as linted,
  (select count(*) from candidates c join penalties p on p.candidate_id = c.id
    where c.trace_id = t.id and p.compiles) as legal,
  (select count(*) from blocks b where b.trace_id = t.id and b.ran is not null and b.tick > 0) as executed,
  (select count(*) from blocks b where b.trace_id = t.id and b.ran and b.tick > 0) as ran
from traces t join bootstraps f on f.id = t.bootstrap_id
where t.job_id = :job and t.status in ('ended', 'failed')
  and {store/last_try}
order by t.number
