-- Writes a campaign.
insert into campaigns (name, over, condition, rubric, rubric_version, model, version)
values (:name, :over, :condition, :rubric, :rubric_version, :model, :version)
returning id
