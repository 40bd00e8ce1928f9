select job_id, job, bootstrap, tick, traces, reward, ran_share from learning_curves
where cast(:job as bigint) is null or job_id = :job order by job_id desc, bootstrap, tick limit 2000
