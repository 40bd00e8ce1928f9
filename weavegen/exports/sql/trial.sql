-- A trace of a Harbor task as Harbor's TrialConfig and TrialResult, and its verifications in the order of the task's steps.
with verified as (
  select s.trace_id, s.id, (h.task #>> array['steps', s.request ->> 'source', 'name']) as step,
    coalesce(s.result ->> 'output', '') as output,
    json_build_object('started_at', s.claimed_at, 'finished_at', s.finished_at) as timing, s.claimed_at,
    (select json_object_agg(e.title, e.value) from evaluations e where e.step_id = s.id and e.cause is null) as rewards,
    (select string_agg(e.cause || ': ' || e.error, '; ' order by e.position)
      from evaluations e where e.step_id = s.id and e.cause is not null) as why
  from steps s
  join ticks k on k.trace_id = s.trace_id and k.number = s.tick and k.run = s.run
  join traces t on t.id = s.trace_id
  join harbor_tasks h on h.id = t.harbor_task_id
  where s.trace_id = :trace and s.kind = 'execute' and s.request ->> 'op' = 'verify' and s.status = 'done'
), verification as (
  select min(claimed_at) as began, bool_and(rewards is not null) as known, bool_or(step is not null) as several,
    (array_agg(timing order by id))[1] as timing, min(why) as why,
    json_agg(json_build_object('step_name', step, 'verifier', timing,
      'verifier_result', case when rewards is not null then json_build_object('rewards', rewards) end) order by id)
      as steps,
    json_agg(json_build_object('step', step, 'output', output, 'rewards', rewards) order by id) as folders
  from verified
), trial as (
  -- Harbor's names of trials have as many characters of the task's.
  select t.*, h.name as task, h.sha256, left(h.name, 32) || '__' || t.id as trial, 'weavegen-' || j.agent as agent,
    j.model, j.version, j.settings
  from traces t join jobs j on j.id = t.job_id join harbor_tasks h on h.id = t.harbor_task_id
  where t.id = :trace
), config as (
  select json_build_object(
    'task', json_build_object('path', t.task), 'trial_name', t.trial, 'trials_dir', '.',
    'agent', json_build_object('name', t.agent, 'model_name', t.model,
      'kwargs', json_build_object('seed', t.seed, 'settings', t.settings, 'params', t.params)),
    'environment', json_build_object('import_path', 'weavegen.harbor:BubblewrapEnvironment')) as config
  from trial t
), tokens as (
  select sum(p.tokens)::bigint as read, sum(p.cached)::bigint as cached
  from prompts p join steps s on s.id = p.step_id where p.trace_id = :trace and s.kind = 'sample'
)
select t.trial, v.folders, c.config, json_build_object(
  'id', md5(t.sha256 || '/' || t.id || '/' || t.seed)::uuid, 'task_name', t.task, 'trial_name', t.trial,
  'trial_uri', 'weavegen:trace/' || t.id, 'task_id', json_build_object('path', t.task), 'task_checksum', t.sha256,
  'config', c.config,
  'agent_info', json_build_object('name', t.agent, 'version', t.version,
    'model_info', case when t.model is not null then json_build_object('name', t.model) end),
  'agent_result', json_build_object('n_input_tokens', k.read, 'n_cache_tokens', k.cached,
    'n_output_tokens', t.sampled_tokens, 'metadata', json_build_object('trace_id', t.id, 'returned', t.returned)),
  'verifier_result', case when v.known then json_build_object('rewards', t.returned -> 'rewards') end,
  'exception_info', case when coalesce(t.failure, v.why) is not null then json_build_object(
    'exception_type', coalesce(t.failure_kind, 'not_evaluated'), 'exception_message', coalesce(t.failure, v.why),
    'exception_traceback', '', 'occurred_at', t.finished_at) end,
  'started_at', t.started_at, 'finished_at', t.finished_at,
  'agent_execution', json_build_object('started_at', t.started_at, 'finished_at', coalesce(v.began, t.finished_at)),
  'verifier', case when not v.several then v.timing end,
  'step_results', case when v.several then v.steps end) as result
from trial t cross join config c cross join verification v cross join tokens k
