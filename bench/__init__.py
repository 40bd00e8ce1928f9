"""Benchmarks: figures beside their bars. `make bench`."""
