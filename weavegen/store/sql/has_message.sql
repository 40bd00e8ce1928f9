-- Whether a channel has a message with this number, or one that people have written after a number.
select exists (
  select from messages
  where channel_id = :channel and kind = 'message' and (number = :number or number > :after and not own)
)
