-- The id of a tool, which is made or renewed: it gets the signature of its new version, and traces that were given another
-- signature call the version that has it. Not "do nothing": only an update locks the row, so that two traces can't take
-- one number for their versions.
insert into tools (name, description, signature) values (:name, :description, :signature)
on conflict (name) do update set description = excluded.description, signature = excluded.signature
returning id
