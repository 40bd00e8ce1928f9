-- Records the chat template of a job that has none.
update jobs set template_id = :template where id = :job and template_id is null
