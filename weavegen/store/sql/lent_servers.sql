-- The servers that people lend, in the order of joining. gone: with those that have left.
select url, owner, model, added_at, removed_at from model_servers where removed_at is null or :gone order by id
