-- The number of blocks that list_blocks.sql listed.
select count(*) from indexed_anew
