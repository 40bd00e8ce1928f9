-- A trace that is to be forked.
select t.id, t.blocks, t.seed, t.lag, t.fork_of, t.fork_at, j.agent
from traces t join jobs j on j.id = t.job_id where t.id = :trace
