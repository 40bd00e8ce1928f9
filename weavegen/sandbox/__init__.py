"""Starts, limits, watches and stops boxes, and communicates with the process inside."""
