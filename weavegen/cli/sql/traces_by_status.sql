-- How many traces have each status.
select status, count(*) as number from traces group by 1
