-- Stores a Harbor task, unless it is stored.
insert into harbor_tasks (sha256, name, task, metadata, files)
values (:sha256, :name, cast(:task as jsonb), cast(:metadata as jsonb), :files)
on conflict do nothing
