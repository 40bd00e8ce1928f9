"""`python -m tests.chaos`: traces are written during faults; then an auditor searches for losses."""

import argparse
import sys

from tests.chaos.run import chaos


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="of the schedule of faults, and of the job")
    parser.add_argument("--minutes", type=float, default=10.0, help="how long faults are injected")
    parser.add_argument("--traces", type=int, default=64)
    parser.add_argument("--agent", default="weave", help="whose traces they are")
    parser.add_argument("--search", default="cascade", help="of weave: how it searches for a block")
    options = parser.parse_args()
    return chaos(options.seed, options.minutes, options.traces, options.agent, options.search)


if __name__ == "__main__":
    sys.exit(main())
