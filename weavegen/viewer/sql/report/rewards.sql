-- By bin: reward is its lower end.
select floor(round((tick_reward / :reward_bin_width)::numeric, 6))::double precision * :reward_bin_width as reward,
  count(*) as ticks
from tick_stats where job_id = :job and tick > 0 and tick_reward is not null group by 1 order by 1
