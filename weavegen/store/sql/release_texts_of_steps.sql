-- What the model wrote in each step of a trace.
select array[step_id] as key, null::double precision as reward, string_agg(text, E'\n' order by position) as text
from candidates where trace_id = :trace group by step_id
