-- What the model wrote in each tick of a trace.
select array[k.number] as key, k.reward,
  (select string_agg(b.body, E'\n' order by b.index) from blocks b
    where b.trace_id = k.trace_id and b.tick = k.number and b.candidate_id is not null) as text
from ticks k where k.trace_id = :trace
