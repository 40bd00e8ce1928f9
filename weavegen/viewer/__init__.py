"""The viewer: jobs, traces and what was thrown away, in a browser. `weavegen serve` serves it."""
