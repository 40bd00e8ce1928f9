-- Stores a bootstrap file, unless it is stored.
insert into bootstraps (sha256, name, source) values (:sha256, :name, :source) on conflict do nothing
