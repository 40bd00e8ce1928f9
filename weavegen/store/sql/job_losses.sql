-- What a job loses. The share of kept tokens is read from at most about `most` traces, evenly spread over the job.
with sample as (
  select id, sampled_tokens, coalesce(fork_at, 0) as own from traces
  where job_id = :job and number in (select generate_series(1, :begun, 1 + (:begun - 1) / :most))
)
select
  (
    select sum(c.tokens) from sample t
    join blocks b on b.trace_id = t.id and b.index >= t.own join candidates c on c.id = b.candidate_id
  )::double precision / nullif((select sum(sampled_tokens) from sample), 0) as kept_share,
  (
    select count(*) from traces t join blocks b on b.trace_id = t.id and b.index >= coalesce(t.fork_at, 0)
    where t.job_id = :job and not b.ran
  ) as raised,
  (
    select count(*) from traces t join steps s on s.trace_id = t.id
    where t.job_id = :job and s.claims > 1 and s.copy_of is null
  ) as repeated
