"""The engine: advance traces, do the work of steps, enqueue, fork."""
