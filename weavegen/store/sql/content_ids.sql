-- Ids of contents in {contents}, by hash.
select sha256, id from {contents} where sha256 = any(:hashes)
