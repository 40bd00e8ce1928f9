-- Lets a job read a document.
insert into job_documents (job_id, path, document_id) values (:job, :path, :document)
