-- The blocks among :ids that traces have not dropped. Lock: the texts stay until the transaction ends.
select id from blocks where id = any(:ids) {lock}
