"""What starts, limits, watches and stops boxes, and talks to the process inside."""
