-- The text of a document of a job.
select d.text from job_documents j join documents d on d.id = j.document_id
where j.job_id = :job and j.path = :path
