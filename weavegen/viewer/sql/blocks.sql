select b.index, b.tick, b.subagent, b.type, b.body, b.timestamp, b.time_remaining,
  b.bm25_query, b.title, b.compiles, b.question, b.answer, b.probability, b.ran, b.exception, b.tags,
  b.score, b.reward, b.preference, b.candidate_id, c.tokens, c.logprobs is not null as has_logprobs
from blocks b left join candidates c on c.id = b.candidate_id
where b.trace_id = :trace and b.index >= :first and b.index < :end order by b.index
