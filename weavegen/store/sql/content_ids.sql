-- Ids of contents in {table}, by hash.
select sha256, id from {table} where sha256 = any(:hashes)
