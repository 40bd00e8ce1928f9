create materialized view candidate_stats as
select
  t.job_id, j.name as job, j.agent, j.model, f.name as bootstrap, c.type, c.round,
  sum(c.candidates)::bigint as candidates,
  sum(c.chosen)::bigint as chosen, sum(c.tokens)::bigint as tokens, sum(c.chosen_tokens)::bigint as chosen_tokens,
  sum(c.cut)::bigint as cut, sum(c.linted)::bigint as linted, sum(c.legal)::bigint as legal,
  sum(c.penalised)::bigint as penalised, sum(c.penalty) / nullif(sum(c.linted), 0) as mean_penalty,
  sum(s.score) / nullif(sum(s.scored), 0) as mean_score,
  sum(c.syntax)::bigint as syntax,
  sum(c.extra_elements)::bigint as extra_elements,
  sum(c.not_a_string)::bigint as not_a_string,
  sum(c.code_in_prose)::bigint as code_in_prose,
  sum(c.shape)::bigint as shape,
  sum(c.wrong_name)::bigint as wrong_name,
  sum(c.title)::bigint as title,
  sum(c.assertions)::bigint as assertions,
  sum(c.forbidden_calls)::bigint as forbidden_calls,
  sum(c.length_after_debug)::bigint as length_after_debug
from (
  select
    c.trace_id, c.type, c.round, count(*) as candidates, count(b.id) as chosen, sum(c.tokens) as tokens,
    sum(c.tokens) filter (where b.id is not null) as chosen_tokens,
    count(*) filter (where c.finish_reason = 'length') as cut, count(p.candidate_id) as linted,
    count(*) filter (where p.compiles) as legal,
    count(*) filter (where p.total <> 0) as penalised, sum(p.total) as penalty,
    count(*) filter (where p.syntax <> 0) as syntax,
    count(*) filter (where p.extra_elements <> 0) as extra_elements,
    count(*) filter (where p.not_a_string <> 0) as not_a_string,
    count(*) filter (where p.code_in_prose <> 0) as code_in_prose,
    count(*) filter (where p.shape <> 0) as shape,
    count(*) filter (where p.wrong_name <> 0) as wrong_name,
    count(*) filter (where p.title <> 0) as title,
    count(*) filter (where p.assertions <> 0) as assertions,
    count(*) filter (where p.forbidden_calls <> 0) as forbidden_calls,
    count(*) filter (where p.length_after_debug <> 0) as length_after_debug
  from candidates c
  left join (
    select
      *, syntax + extra_elements + not_a_string + code_in_prose + shape + wrong_name + title + assertions
        + forbidden_calls + length_after_debug as total
    from penalties
  ) p on p.candidate_id = c.id
  left join blocks b on b.candidate_id = c.id and b.trace_id = c.trace_id
  group by c.trace_id, c.type, c.round
) c
left join (
  select c.trace_id, c.type, c.round, sum(s.score) as score, count(s.score) as scored
  from scores s
  join candidates c on c.id = s.candidate_id
  where s.stage = 'selection'
  group by c.trace_id, c.type, c.round
) s on s.trace_id = c.trace_id and s.type = c.type and s.round = c.round
join traces t on t.id = c.trace_id
join jobs j on j.id = t.job_id
join bootstraps f on f.id = t.bootstrap_id
group by t.job_id, j.name, j.agent, j.model, f.name, c.type, c.round;

create unique index uq_candidate_stats on candidate_stats (job_id, bootstrap, type, round);

comment on materialized view candidate_stats is
  'Candidates and their outcomes: a row for each job, bootstrap, type and round. As of the last refresh.';
comment on column candidate_stats.job_id is 'The job.';
comment on column candidate_stats.job is 'Its name.';
comment on column candidate_stats.agent is 'The program that wrote the traces: weave, planning, ...';
comment on column candidate_stats.model is 'The model that writes the job''s traces; null: no model was asked yet.';
comment on column candidate_stats.bootstrap is 'File name of the bootstrap.';
comment on column candidate_stats.type is
  'Block type that they were sampled for; bm25-query: queries; next-type: names of types.';
comment on column candidate_stats.round is 'Number of the round: from 0 in a cascade, from 1 in a tree search.';
comment on column candidate_stats.candidates is 'Sampled candidates; in a tree search: nodes.';
comment on column candidate_stats.chosen is 'Candidates that became blocks.';
comment on column candidate_stats.tokens is 'Sampled tokens.';
comment on column candidate_stats.chosen_tokens is 'Sampled tokens of the candidates that became blocks.';
comment on column candidate_stats.cut is 'Candidates that ended because they reached the token limit.';
comment on column candidate_stats.linted is 'Candidates that were linted.';
comment on column candidate_stats.legal is 'Linted candidates that are legal Python.';
comment on column candidate_stats.penalised is 'Linted candidates with a penalty.';
comment on column candidate_stats.mean_penalty is 'Mean sum of penalties, over the linted candidates.';
comment on column candidate_stats.mean_score is
  'Mean score as sampled, log odds, before penalties; null: none was scored.';
comment on column candidate_stats.syntax is 'Candidates with the penalty syntax: does not compile.';
comment on column candidate_stats.extra_elements is
  'Candidates with the penalty extra_elements: more top-level elements than the type allows.';
comment on column candidate_stats.not_a_string is
  'Candidates with the penalty not_a_string: prose that does not begin with a string.';
comment on column candidate_stats.code_in_prose is
  'Candidates with the penalty code_in_prose: code-like text in prose.';
comment on column candidate_stats.shape is
  'Candidates with the penalty shape: not a function followed by its registration.';
comment on column candidate_stats.wrong_name is
  'Candidates with the penalty wrong_name: registers another name than the function''s.';
comment on column candidate_stats.title is
  'Candidates with the penalty title: an evaluation whose title is not a question.';
comment on column candidate_stats.assertions is
  'Candidates with the penalty assertions: none, too many or unclear assertions.';
comment on column candidate_stats.forbidden_calls is
  'Candidates with the penalty forbidden_calls: calls that are not allowed in the type.';
comment on column candidate_stats.length_after_debug is
  'Candidates with the penalty length_after_debug: long right after a debug block.';
