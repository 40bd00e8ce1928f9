-- The steps of a tick, with where the seconds of each went: waiting for a worker, for a model server, for an
-- environment, and the rest. `begin` and `ended` count from when the first step was ready. An open step ends now.
with steps as (
  select *, case
      when finished_at is not null then finished_at
      when status in ('ready', 'running') then now() else coalesce(claimed_at, ready_at)
    end as ended_at
  from steps where trace_id = :trace and tick = :tick order by run, ordinal limit 2000
), spent as (
  select s.*, extract(epoch from c.at - ready_at)::float as waiting, w.worked, m.model,
    least(coalesce(environment_seconds, 0), w.worked - m.model) as environment
  from steps s, least(greatest(coalesce(claimed_at, ended_at), ready_at), ended_at) as c(at),
    lateral (select greatest(extract(epoch from ended_at - c.at)::float, 0)) as w(worked),
    lateral (select least(coalesce(model_seconds, 0), w.worked)) as m(model)
)
select run, ordinal, kind, status, claims, failure, model_seconds, environment_seconds,
  coalesce(nullif(trim(regexp_replace(label, '^trace ' || trace_id || ' tick ' || tick, '')), ''), kind) as label,
  extract(epoch from ready_at - min(ready_at) over ())::float as begin,
  extract(epoch from ended_at - min(ready_at) over ())::float as ended,
  waiting, model, environment, worked - model - environment as own, waiting + worked as seconds
from spent order by run, ordinal
