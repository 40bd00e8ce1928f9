"""`python -m weavegen.sim --port N`: the simulated vLLM. docs/simulation.md explains the load model."""

import logging
import sys

from weavegen.errors import UsageError
from weavegen.sim.options import parse
from weavegen.sim.server import serve


def main() -> int:
    """Exit code 2 if the arguments can't be used."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        options = parse()
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
