-- Delegated traces that nobody waits for any more.
select t.id from traces t join steps s on s.id = t.called_by
where t.status in ('queued', 'running') and s.status = 'void'
