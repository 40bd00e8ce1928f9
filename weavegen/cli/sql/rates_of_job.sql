-- What traces of a job cost: rates over about `most` of its traces, evenly spread over those that started. Cancelled
-- traces do not count. Kept are the traces that ended or still run. A rate is null where nothing is known.
with sample as materialized (
  select id, status, status <> 'failed' as kept, coalesce(fork_at, 0) as own,
    greatest(0, blocks - coalesce(fork_at, 0)) as blocks, bytes - shared_bytes as bytes, sampled_tokens, server
  from traces
  where job_id = :job and status in ('running', 'ended', 'failed')
    and number in (select generate_series(1, :begun, 1 + (:begun - 1) / :most))
), total as (
  select count(*) as traces, count(distinct server) as servers,
    nullif(sum(sampled_tokens), 0)::double precision as sampled, nullif(sum(blocks), 0)::double precision as blocks,
    (sum(bytes) filter (where kept))::double precision as kept_bytes,
    coalesce(avg(blocks) filter (where status <> 'running'), avg(blocks))::double precision as blocks_of_trace
  from sample
), written as (
  select nullif(sum(c.tokens), 0)::double precision as kept_tokens from sample t
  join blocks b on b.trace_id = t.id and b.index >= t.own join candidates c on c.id = b.candidate_id where t.kept
), journal as (
  select count(*)::double precision as steps from sample t join steps s on s.trace_id = t.id where s.copy_of is null
), asked as (
  select nullif(count(*), 0)::double precision as requests, sum(p.tokens)::double precision as prompt_tokens,
    sum(p.cached)::double precision / nullif(sum(p.tokens) filter (where p.cached is not null), 0) as cached_share
  from sample t join prompts p on p.trace_id = t.id
), database as (
  select sum(pg_total_relation_size(oid))::double precision as bytes from pg_class
  where relkind in ('r', 'm') and relnamespace = current_schema()::text::regnamespace
), corpus as (
  -- Tables without rows take some megabytes, so a small database says nothing about the bytes of a block.
  select nullif(greatest(sum(blocks - coalesce(fork_at, 0)), 999), 999)::double precision as blocks from traces
)
select
  traces, servers, sampled / kept_tokens as sampled_per_kept, kept_bytes / kept_tokens as bytes_per_kept_token,
  kept_bytes / total.blocks as bytes_per_block, blocks_of_trace as blocks_per_trace,
  steps / total.blocks as steps_per_block, requests / total.blocks as requests_per_block,
  prompt_tokens / sampled as prompt_tokens_per_sampled, cached_share,
  database.bytes / corpus.blocks as database_per_block
from total, written, journal, asked, database, corpus
