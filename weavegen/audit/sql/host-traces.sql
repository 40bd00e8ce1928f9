-- The state of these traces; null where a trace may still have something on this host.
select t.id, case when t.status <> 'running'
    and coalesce(t.finished_at < now() - make_interval(secs => :grace), true)
  then 'its trace is ' || t.status end as state
from traces t where {scope} and t.id = any(:ids)
