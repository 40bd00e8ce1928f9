-- gauge steps_running: Steps that a worker holds, or that wait for others.
select kinds.kind, count(s.id) as steps_running
from (select unnest(array['sample', 'score', 'lint', 'retrieve', 'execute', 'consult'])
      union select kind from steps where status = 'running') kinds (kind)
left join steps s on s.kind = kinds.kind and s.status = 'running' group by kinds.kind
