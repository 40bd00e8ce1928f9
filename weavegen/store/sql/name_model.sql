-- Records the model that a job's first trace found, if the job asked for none.
update jobs set model = :model where id = (select job_id from traces where id = :trace) and model is null
