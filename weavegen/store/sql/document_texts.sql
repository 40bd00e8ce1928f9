-- The documents of a job, by path.
select j.path, d.text from job_documents j join documents d on d.id = j.document_id
where j.job_id = :job order by j.path collate "C"
