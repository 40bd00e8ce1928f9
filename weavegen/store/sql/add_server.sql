-- Adds a server to the pool.
insert into model_servers (url, owner, model) values (:url, :owner, :model)
