-- Gives a server the running traces of another one with the fewest blocks.
update traces set server = :target where id in (
  select id from traces where status = 'running' and server = :source order by blocks, id desc limit :number
)
