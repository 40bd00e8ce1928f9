"""Benchmarks: measured figures beside their bars. Run `make bench`."""
