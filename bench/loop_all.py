"""`make loop-all`: the loop of `make loop` for two tasks, with three seeds each."""

from bench.loop import run_all as run

__all__ = ["run"]
