-- The first job with this name; no row: there is none.
select id from jobs where name = :name order by id limit 1
