-- The views in the database, in the order in which they are made.
select name, sha256 from views order by position
