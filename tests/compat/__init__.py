"""Bootstrap files that others wrote, as they are."""
