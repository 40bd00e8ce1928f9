"""`python -m simulation`: the simulated vLLM. docs/simulation.md explains its load model."""

import logging
import sys
from collections.abc import Sequence

from simulation.options import parse
from simulation.server import serve
from weavegen.errors import UsageError


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until interrupted. Returns the exit code: 2 if an argument is invalid."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        serve(parse(arguments))
    except UsageError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
