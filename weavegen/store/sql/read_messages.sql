-- The newest messages of a channel between two numbers, oldest first, as the agent sees them.
with newest as (
  select * from messages where channel_id = :channel and kind = 'message' and number > :after
    and (cast(:before as bigint) = 0 or number < :before)
  order by number desc limit :limit
)
select n.number as id, n.author, n.own, n.text as content, n.created_at as timestamp, n.about as reply_to,
  array(
    select r.text from messages r
    where r.channel_id = :channel and r.kind = 'reaction' and r.about = n.number order by r.number
  ) as reactions
from newest n order by n.number
