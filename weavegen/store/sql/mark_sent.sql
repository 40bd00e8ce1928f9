-- Records that a message was sent to Discord. discord_id null: it is a reaction, or Discord refused it.
update messages set sent_at = clock_timestamp(), discord_id = :discord_id where id = :message
