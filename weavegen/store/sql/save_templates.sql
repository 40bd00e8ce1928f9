-- Stores a chat template, unless it is stored.
insert into templates (sha256, texts) values (:sha256, cast(:texts as jsonb)) on conflict do nothing
