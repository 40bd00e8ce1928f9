-- Writes a correction. No row: the name is taken.
insert into corrections (name, campaign, condition, version) values (:name, :campaign, :condition, :version)
on conflict do nothing returning id
