-- How old the rows of each materialised view are.
select name, seconds_ago from freshness order by name
