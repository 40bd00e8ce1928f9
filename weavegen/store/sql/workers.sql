-- The workers, with the seconds since they last reported.
select process, node, queues, version, settings, age > :silent as silent, age
from (select *, extract(epoch from clock_timestamp() - seen_at)::double precision as age from workers) w
where age < :forgotten
order by node collate "C", process collate "C"
