-- Stores an archive of files with which /app begins, unless it is stored.
insert into starting_files (sha256, archive) values (:sha256, :archive) on conflict do nothing
