-- Where the fork evaluates programs of the cut tick itself, these replace the copies (store/programs.py).
insert into programs (trace_id, number, tick, generation, island, parents, source, score, signature, error,
  tried_at)
select :child, number, tick, generation, island, parents, source, score, signature, error, tried_at
from programs where trace_id = :parent and tick <= :tick order by number
