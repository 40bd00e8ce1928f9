-- A page of a subagent's blocks with their executions, each with what its step has in any case. `called`: the subagent
-- whose call the block ended; the call is the step right before the execution. Messages of the assistant that the task gave
-- are steps of the agent, which alone may call tools, and are not to be trained on, like the blocks that a fork shares.
select b.index, b.type, b.body, b.title, b.question, b.answer, b.probability, s.result,
  json_strip_nulls(json_build_object(
    'timestamp', to_char(to_timestamp(b.timestamp) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"'),
    'source', case
      when b.type in ('bootstrap', 'user') then 'user'
      when b.block_size is not null or b.type in ('assistant', 'option') then 'agent' else 'system' end,
    'message', b.body, 'is_copied_context',
      case when b.index < t.fork_at or (b.type = 'assistant' and b.block_size is null) then true end)) as step,
  json_strip_nulls(json_build_object('prompt_tokens', p.tokens, 'completion_tokens', c.tokens, 'cached_tokens', p.cached,
    'completion_token_ids', c.token_ids, 'logprobs', c.logprobs)) as metrics,
  json_strip_nulls(json_build_object('index', b.index, 'type', b.type, 'tick', b.tick, 'compiles', b.compiles,
    'ran', b.ran, 'question', b.question, 'answer', b.answer, 'probability', b.probability, 'score', b.score,
    'reward', b.reward)) as extra, w.request ->> 'subagent' as called
from blocks b join traces t on t.id = b.trace_id
left join candidates c on c.id = b.candidate_id
left join prompts p on p.step_id = c.step_id
left join steps s on s.id = b.executed_by
left join steps w on w.trace_id = s.trace_id and w.tick = s.tick and w.run = s.run and w.ordinal = s.ordinal - 1
  and w.kind = 'work'
where b.trace_id = :trace and b.index >= :first and b.subagent = :subagent order by b.index limit :limit
