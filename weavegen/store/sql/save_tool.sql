-- The id of a tool, which is made or renewed. Not "do nothing": only an update locks the row, so that two traces can't
-- take one number for their versions.
insert into tools (name, description, signature) values (:name, :description, :signature)
on conflict (name) do update set description = excluded.description, signature = excluded.signature
returning id
