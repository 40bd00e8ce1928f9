-- A page of the texts that were sampled for blocks, by number, each as a line of JSON.
select v.candidate_id, json_strip_nulls(json_build_object('candidate_id', v.candidate_id, 'block', v.index,
  'type', v.type, 'tick', v.tick, 'step_id', v.step_id, 'round', v.round, 'position', v.position, 'depth', v.depth,
  'parent_id', c.parent_id, 'text', v.text, 'finish_reason', v.finish_reason, 'tokens', v.tokens,
  'compiles', v.compiles, 'score', v.score, 'penalty', v.penalty, 'value', v.value, 'ran', v.ran,
  'achieved', v.achieved, 'selected', v.block_id is not null, 'token_ids', c.token_ids, 'logprobs', c.logprobs))::text
  as line
from candidate_values v join candidates c on c.id = v.candidate_id
where v.trace_id = :trace and v.candidate_id >= :first order by v.candidate_id limit :limit
