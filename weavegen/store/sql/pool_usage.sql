-- Sums over the ledger by {columns} of the view pool_usage. The most prompt tokens come first.
select {columns}, sum(requests)::bigint as requests, sum(sequences)::bigint as sequences,
  sum(prompt_tokens)::bigint as prompt_tokens, sum(cached_tokens)::bigint as cached_tokens,
  sum(sampled_tokens)::bigint as sampled_tokens, sum(uncounted)::bigint as uncounted, sum(cost) as cost
from pool_usage group by {columns} order by prompt_tokens desc, {columns}
