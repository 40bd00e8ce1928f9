-- Records that a message was sent to Discord.
update messages set sent_at = clock_timestamp(), discord_id = :discord_id where id = :message
