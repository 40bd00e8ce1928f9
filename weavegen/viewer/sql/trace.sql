select t.id, t.job_id, j.name as job, j.agent, j.model, t.number, b.name as bootstrap,
  t.seed, t.status, t.ended_because, t.failure_kind, t.failure, t.returned, {store/trace_result} as result, t.params, t.ticks,
  t.blocks, t.bytes, t.restarts, t.sampled_tokens, t.candidates, t.written, t.server, t.started_at,
  t.finished_at, t.fork_of, t.fork_at, t.retry_of, s.trace_id as asked_by,
  t.harbor_task_id is not null as harbor,
  concat_ws(':', t.restarts, t.blocks, t.ticks, t.status) as key,
  extract(epoch from coalesce(t.finished_at, now()) - t.started_at)::float as seconds,
  (select avg(k.reward) from ticks k where k.trace_id = t.id and k.number > 0
    and {viewer/own_tick}) as reward,
  greatest((select k.first_block from ticks k where k.trace_id = t.id and k.number > 0 order by k.number limit 1),
    t.fork_at, 0) as first_written,
  array(select r.id from traces r where r.retry_of = t.id order by r.id) as retries,
  array(select f.id from traces f where f.fork_of = t.id order by f.id limit 50) as forks,
  (select json_agg(json_build_object('author', author, 'verdict', verdict, 'labels', labels, 'note', note,
    'at', left((changed_at at time zone 'UTC')::text, 16)) order by a.id)
    from annotations a where a.trace_id = t.id and a.block_id is null and a.candidate_id is null) as annotations,
  exists (select from channels c where c.trace_id = t.id) as talks
from traces t join jobs j on j.id = t.job_id join bootstraps b on b.id = t.bootstrap_id
left join steps s on s.id = t.called_by
where t.id = :trace
