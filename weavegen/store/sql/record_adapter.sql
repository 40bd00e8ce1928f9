-- Records an adapter that the servers of the pool serve as the model :name.
insert into adapters (name, folder) values (:name, :folder) on conflict (name) do update set folder = excluded.folder
