-- The names of corrections, in the order in which they were made.
select name from corrections order by id
