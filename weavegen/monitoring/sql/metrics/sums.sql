-- counter blocks: Blocks recorded, here and below without copies in forks.
-- counter trace_bytes: Bytes of rendered trace.
-- counter ticks: Ticks finished, without the bootstraps' first ticks.
-- counter tick_restarts: Ticks that were started over.
-- counter sampled_tokens: Tokens sampled from the model, including rejected candidates.
-- counter candidates: Candidates sampled for blocks, including rejected ones.
-- counter written_blocks: Blocks that were made of a candidate.
select coalesce(sum(greatest(0, blocks - coalesce(fork_at, 0))), 0)::bigint as blocks,
  coalesce(sum(bytes - shared_bytes), 0)::bigint as trace_bytes, (coalesce(sum(ticks), 0) - (
    select count(*) from traces t join ticks k on k.trace_id = t.id
    where t.fork_of is not null and k.number > 0 and not {viewer/own_tick}
  ))::bigint as ticks,
  coalesce(sum(restarts), 0)::bigint as tick_restarts, coalesce(sum(sampled_tokens), 0)::bigint as sampled_tokens,
  coalesce(sum(candidates), 0)::bigint as candidates, coalesce(sum(written), 0)::bigint as written_blocks
from traces
