create view pool_usage as
select
  u.day, u.server, u.owner, t.job_id, j.name as job, j.agent, j.model, j.enqueued_by, u.kind,
  sum(u.requests)::bigint as requests, sum(u.sequences)::bigint as sequences,
  sum(u.prompt_tokens)::bigint as prompt_tokens, sum(u.cached_tokens)::bigint as cached_tokens,
  sum(u.sampled_tokens)::bigint as sampled_tokens, sum(u.uncounted)::bigint as uncounted,
  sum(u.cost) as cost
from (
  -- Grouped by trace first, so that millions of rows need not be joined.
  select
    (at at time zone 'UTC')::date as day, server, owner, trace_id, kind, sum(requests) as requests,
    sum(sequences) as sequences, sum(prompt_tokens) as prompt_tokens, sum(cached_tokens) as cached_tokens,
    sum(sampled_tokens) as sampled_tokens, sum(uncounted) as uncounted, sum(cost) as cost
  from model_usage group by 1, 2, 3, 4, 5
) u
left join traces t on t.id = u.trace_id
left join jobs j on j.id = t.job_id
group by u.day, u.server, u.owner, t.job_id, j.name, j.agent, j.model, j.enqueued_by, u.kind;

comment on view pool_usage is
  'The ledger of the pool: requests that servers answered, and for whom. A row for each day, server, owner, job and kind of step.';
comment on column pool_usage.day is 'Day in UTC.';
comment on column pool_usage.server is 'Base URL of the server.';
comment on column pool_usage.owner is 'Who lent the server; null: it is one of OPENAI_BASE_URL.';
comment on column pool_usage.job_id is
  'The job whose traces asked, or whose texts were asked about; null: it was deleted.';
comment on column pool_usage.job is 'Its name.';
comment on column pool_usage.agent is 'The program that wrote the traces: weave, planning, ...';
comment on column pool_usage.model is 'The model that writes the job''s traces; null: no model was asked yet.';
comment on column pool_usage.enqueued_by is
  'Who enqueued the job; null: enqueued by an older version, which did not record it.';
comment on column pool_usage.kind is 'sample, score, execute (what callbacks ask for) or rescore.';
comment on column pool_usage.requests is 'Requests that were answered.';
comment on column pool_usage.sequences is 'Sequences: prompts times continuations.';
comment on column pool_usage.prompt_tokens is 'Prompt tokens of all sequences, as the servers count them.';
comment on column pool_usage.cached_tokens is
  'Prompt tokens that came from prefix caches. Servers report it for one sequence of a request with one prompt; null: none was reported.';
comment on column pool_usage.sampled_tokens is 'Sampled tokens.';
comment on column pool_usage.uncounted is
  'Requests for which the server reported no tokens. The sums of tokens lack them.';
comment on column pool_usage.cost is
  'What the tokens cost, by WEAVEGEN_PRICES; null: no model had a price.';
