-- Blocks that list_blocks.sql listed, from place :first on, before :end.
select id from indexed_anew where place >= :first and place < :end order by id
