-- proves: in conversations each tick after the first has the state that the tick before handed over; ticks of
--   other agents have none, verifications apart
-- subject: ticks
select t.id, 'tick ' || k.number, case
    when j.agent = any(:conversing) then 'the state that the previous tick handed over is missing'
    else 'it has a state, but ticks of this agent hand over none'
  end
from ticks k join traces t on t.id = k.trace_id join jobs j on j.id = t.job_id
where {scope}
  and k.state -> 'verification' is null
  and (nullif(k.state, 'null') is null) = (k.number > 0 and j.agent = any(:conversing))
order by 1, k.number
