-- What the model wrote in each tick of a trace, under minus its number; and in each candidate that was tried.
select array[-k.number::bigint] as key, k.reward,
  (select string_agg(b.body, E'\n' order by b.index) from blocks b
    where b.trace_id = k.trace_id and b.tick = k.number and b.candidate_id is not null) as text
from ticks k where k.trace_id = :trace
union all
select array[c.id], k.reward, c.text
from trials r
join candidates c on c.id = r.candidate_id
join steps s on s.id = c.step_id
join ticks k on k.trace_id = c.trace_id and k.number = s.tick
where c.trace_id = :trace
