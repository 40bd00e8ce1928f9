-- A campaign, by its name.
select id from campaigns where name = :name
