"""`make bench`, or `python -m bench NAME ...`: run benchmarks. Exit code 1 when a bar is missed.

The output of each benchmark is saved in bench/results/.
"""

import importlib
import signal
import subprocess
import sys
from pathlib import Path

from rich.console import Console

from bench.bars import report

NAMES = (
    "lint", "engine", "in_flight", "long_trace", "pool", "prefix", "agents", "exports", "corpus_sql", "retrieval",
    "trials",
)  # fmt: skip
APART = ("examples", "loop", "loop_all", "models", "preferences", "scale", "search", "vectors")
"""They take long, or are run for one decision. `loop` (`make loop`), `loop_all` and `preferences` need PyTorch;
`examples`, `models`, `preferences` a model."""
RESULTS = Path(__file__).parent / "results"


def run_one(name: str) -> int:
    """Run one benchmark. Returns the exit code."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # it takes its installation down
    console = Console(highlight=False, width=120, record=True)
    code = report(console, importlib.import_module(f"bench.{name}").run(console))
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.txt").write_text(console.export_text().strip() + "\n")
    return code


def main(names: list[str]) -> int:
    """Run several benchmarks, each in a process of its own, because they start installations and caches are per
    process."""
    if strange := [name for name in names if name not in NAMES + APART]:
        sys.stderr.write(f"bench: there is no {', '.join(strange)}: choose from {', '.join(NAMES + APART)}\n")
        return 2
    if len(names) == 1:
        return run_one(names[0])
    return max(subprocess.run([sys.executable, "-m", "bench", name]).returncode for name in names or NAMES)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
