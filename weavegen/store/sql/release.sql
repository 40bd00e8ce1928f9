-- A release, by its name.
select * from releases where name = :name
