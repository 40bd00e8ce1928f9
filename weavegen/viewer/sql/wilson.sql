-- Wilson's 95% interval (1927) of a share `value` of `n`: share_low and share_high, for the tables before it.
cross join lateral (select 1.959964 ^ 2 / nullif(n, 0) as q) normal
cross join lateral (select sqrt(greatest(0, value * (1 - value) * q + q * q / 4)) as half) spread_of_share
cross join lateral (
  select greatest(0, (value + q / 2 - half) / (1 + q)) as share_low, least(1, (value + q / 2 + half) / (1 + q)) as share_high
) ends_of_share
