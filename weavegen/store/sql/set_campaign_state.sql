-- Stops a campaign, or lets it go on.
update campaigns set state = :state where id = :campaign
