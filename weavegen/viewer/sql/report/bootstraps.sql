select f.name as bootstrap, f.sha256, count(*) as traces, count(*) filter (where t.status = 'ended') as ended,
  count(*) filter (where t.status = 'failed') as failed, sum(t.bytes - t.shared_bytes)::bigint as bytes
from traces t join bootstraps f on f.id = t.bootstrap_id where t.job_id = :job
group by f.id, f.name, f.sha256 order by f.name
