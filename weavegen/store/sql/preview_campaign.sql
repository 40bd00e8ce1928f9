-- found: rows that the condition found. asked: those among them that the model wrote and that the rubric has questions
-- about. questions: all about these, by :numbers for :all_types, without the questions of assertions.
-- texts: campaign_texts.sql.
with texts as ({store/campaign_texts})
select cardinality(cast(:ids as bigint[])) as found, count(*) as asked, count(distinct t.trace_id) as traces,
  coalesce(sum(q.number), 0)::bigint as questions
from texts t
left join unnest(cast(:all_types as text[]), cast(:numbers as bigint[])) q (type, number) on q.type = t.type
