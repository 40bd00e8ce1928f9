-- The archive with the files of a Harbor task.
select files from harbor_tasks where sha256 = :sha256
