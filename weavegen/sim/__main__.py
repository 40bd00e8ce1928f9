"""`python -m weavegen.sim --port N`: the simulated vLLM."""

import argparse
import logging
import sys
from dataclasses import fields
from pathlib import Path

from weavegen.errors import UsageError
from weavegen.sim import SERVER
from weavegen.sim.load import Faults, Load
from weavegen.sim.server import serve


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("weavegen.sim", description=f"vLLM's API served by {SERVER}.")
    parser.add_argument("--port", type=int, default=0, help="0: a free one (default)")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--ready-file", type=Path, help="gets url, port and pid as JSON once requests are taken")
    parser.add_argument("--seed", type=int, default=0, help="decides which requests the faults strike")
    parser.add_argument("--slots", type=int, default=Load.slots, help="sequences that run at once")
    parser.add_argument("--prefill", type=float, default=Load.prefill, help="prompt tokens a second; 0: no time")
    parser.add_argument("--inter-token", type=float, default=Load.inter_token, help="milliseconds per token")
    parser.add_argument("--no-prefix-cache", action="store_true", help="compute every prompt in full")
    for rate in fields(Faults):
        name = "--fault-" + rate.name.replace("_", "-")
        parser.add_argument(name, type=float, default=0.0, metavar="RATE", dest=rate.name)
    return parser


def main() -> int:
    """Exit code 2 if the arguments can't be used."""
    args = _parser().parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        load = Load(args.slots, args.prefill, args.inter_token, not args.no_prefix_cache)
        faults = Faults(**{rate.name: getattr(args, rate.name) for rate in fields(Faults)}).check()
        serve(args.port, args.host, load=load, faults=faults, seed=args.seed, ready_file=args.ready_file)
    except UsageError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
