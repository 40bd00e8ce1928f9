-- Lets a job read the documents of another job.
insert into job_documents (job_id, path, document_id)
select :target, path, document_id from job_documents where job_id = :source on conflict do nothing
