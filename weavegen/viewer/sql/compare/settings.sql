-- Settings that differ between two jobs, as they were enqueued. Null: the default.
with given as (
  select id, settings || jsonb_build_object('agent', agent, 'model', model, 'evaluator', evaluator, 'seed', seed,
    'version', version) as settings
  from jobs
)
select coalesce(x.key, y.key) as name, x.value as a, y.value as b
from (select s.* from given, jsonb_each(settings) s where id = :a) x
full join (select s.* from given, jsonb_each(settings) s where id = :b) y on y.key = x.key
where x.value is distinct from y.value order by 1
