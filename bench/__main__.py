"""`make bench`: run the benchmarks; exit code 1 when a bar is missed."""

import sys

from rich.console import Console

from bench import engine, in_flight, lint, long_trace, pool, prefix
from bench.bars import report

console = Console(highlight=False, width=120)
sys.exit(report(console, [*lint.run(console), *engine.run(console)]))
