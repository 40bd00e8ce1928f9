select count(*) as segments, max("end") as "end", string_agg(documents, '' order by number) as documents
from segments where trace_id = :trace and "end" <= :before
