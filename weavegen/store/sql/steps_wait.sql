-- Records why steps that workers hold wait. The arrays have an element for each step.
update steps s set failure = w.failure
from unnest(cast(:ids as bigint[]), cast(:claims as bigint[]), cast(:failures as text[])) w (id, claims, failure)
where s.id = w.id and s.claims = w.claims and s.status = 'running'
