-- Why a trace is over; null: it is not.
select case when status in ('ended', 'failed', 'cancelled')
  then coalesce(nullif(failure, ''), nullif(ended_because, ''), status) end as reason
from traces where id = :trace
