-- How many running traces each model server has.
select server, count(*) as traces from traces where status = 'running' and server is not null group by server
