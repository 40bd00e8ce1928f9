-- What the model wrote in a trace, as one text.
select array[t.id] as key, (select avg(k.reward) from ticks k where k.trace_id = t.id and k.number > 0) as reward,
  (select string_agg(b.body, E'\n' order by b.index) from blocks b
    where b.trace_id = t.id and b.candidate_id is not null) as text
from traces t where t.id = :trace
