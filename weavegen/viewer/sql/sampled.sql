select c.id, s.run, c.round, c.depth, c.parent_id as parent, c.position,
  c.text, c.tokens, c.finish_reason, c.type
from steps s join candidates c on c.step_id = s.id
where s.trace_id = :trace and s.tick = :tick and s.kind = 'sample' and c.block_index = :index
order by s.run desc, s.ordinal, c.position
