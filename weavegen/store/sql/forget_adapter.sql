-- Forgets an adapter, which workers then load no more.
delete from adapters where name = :name
