select b.index, b.tick, b.subagent, b.type, b.body, b.timestamp, b.time_remaining,
  b.bm25_query, b.title, b.compiles, b.question, b.answer, b.probability, b.ran, b.exception, b.tags,
  b.score, b.reward, k.protected as reward_protected, b.preference, b.candidate_id, c.tokens, c.logprobs is not null as has_logprobs
from blocks b left join candidates c on c.id = b.candidate_id
left join ticks k on k.trace_id = b.trace_id and k.number = b.tick
where b.trace_id = :trace and b.index >= :first and b.index < :end order by b.index
