insert into job_documents (job_id, path, document_id)
select :to, path, document_id from job_documents where job_id = :from on conflict do nothing
