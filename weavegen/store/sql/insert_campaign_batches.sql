-- Writes the texts of a campaign, in batches. texts: campaign_texts.sql.
with texts as materialized ({store/campaign_texts}),
batches as (
  insert into campaign_batches (campaign_id, trace_id, number)
  select :campaign, trace_id, number from texts group by trace_id, number order by trace_id, number
  returning id, trace_id, number
)
insert into campaign_items (batch_id, candidate_id, block_id)
select b.id, t.candidate_id, t.block_id
from texts t join batches b on b.trace_id = t.trace_id and b.number = t.number order by t.place
