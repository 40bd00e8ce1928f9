-- A pause that ends is added to the time that the job was paused.
update jobs set state = :state,
  pause_reason = :reason, paused_at = case when :state = 'paused' then clock_timestamp() end,
  paused_seconds = paused_seconds + case when state = 'paused'
    then round(extract(epoch from clock_timestamp() - paused_at), 3)::double precision else 0 end
where id = any(:jobs)
