-- The scores of question :question in job :job, with the right answers: those that the job's own ticks asked for, or
-- those of a campaign.
select score, answer, trace_id as trace, block_id from calibration_pairs
where job_id = :job and campaign is not distinct from cast(:campaign as text) and question = :question
  and exact and score is not null
order by block_id
