-- Forgets a view that was dropped.
delete from views where name = :name
