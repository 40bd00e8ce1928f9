-- Stores a set of tools that models were offered, unless it is stored.
insert into toolsets (sha256, tools) values (:sha256, :tools) on conflict do nothing
