"""`python -m simulation --port N`: the simulated vLLM. docs/simulation.md explains the load model."""

import logging
import sys
from collections.abc import Sequence

from simulation.options import parse
from simulation.server import serve
from weavegen.errors import UsageError


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 2 if the arguments can't be used."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        options = parse(arguments)
        serve(
            options.port,
            options.host,
            load=options.load,
            faults=options.faults,
            plain=options.plain,
            seed=options.seed,
            ready_file=options.ready_file,
        )
    except UsageError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
