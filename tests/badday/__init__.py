"""Bad days: an installation that writes traces is broken in many ways, and a user looks at it."""
