-- The worker processes that hold steps.
select distinct worker from steps where status = 'running' and worker is not null
