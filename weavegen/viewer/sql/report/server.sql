select current_setting('server_version') as version, min(as_of) as as_of from freshness
where name in (
  'tick_stats', 'block_stats', 'candidate_stats', 'step_times', 'errors_by_stage', 'evaluator_calibration',
  'question_stats'
)
