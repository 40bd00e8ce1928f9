-- The jobs of the traces that work for the traces of a job.
select id from jobs where called_by = :job order by id
