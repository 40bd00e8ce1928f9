-- Requests with the jobs of their traces, by id. A parameter that is null selects all.
select r.*, t.job_id from requests r left join traces t on t.id = r.trace_id
where (r.id = :id or cast(:id as bigint) is null)
  and (r.status = any(:statuses) or cast(:statuses as text[]) is null)
  and (r.asked_by = :user or cast(:user as text) is null)
order by r.id
