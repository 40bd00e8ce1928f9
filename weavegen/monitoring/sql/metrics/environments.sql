-- gauge environments_open: Live Python processes of traces.
select host, count(*) as environments_open from environments where closed_at is null group by host
