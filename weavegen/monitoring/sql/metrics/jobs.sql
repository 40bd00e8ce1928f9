-- gauge jobs: Jobs by state.
select state, count(j.id) as jobs
from unnest(array['active', 'paused', 'draining']) state left join jobs j using (state) group by state
