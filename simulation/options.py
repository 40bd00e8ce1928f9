"""The options of `python -m simulation`, and how they become what the server is started with."""

import argparse
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import NoReturn

from simulation import SERVER, parameters
from simulation.parameters import POLICIES, PRESETS, Faults, Load
from weavegen.errors import UsageError

HOST = "127.0.0.1"
ABOUT = {
    "slots": "sequences that run at once",
    "inter_token": "milliseconds of a step",
    "per_sequence": "milliseconds that each sequence in the batch adds to a step",
    "per_context": "milliseconds that 1,000 tokens of context in the batch add to a step",
    "prefill": "prompt tokens a second that are not in the prefix cache; 0: no time",
    "step_tokens": "tokens of one step at most",
    "cache_tokens": "size of the KV cache",
    "max_model_len": "tokens of a sequence at most",
    "scheduling_policy": " or ".join(POLICIES),
}
"""What each of Load's numbers means, for help texts."""


@dataclass(frozen=True)
class Options:
    """What the command line says."""

    port: int
    host: str
    ready_file: Path | None
    seed: int
    plain: bool
    load: Load
    faults: Faults


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"the simulated model: {message} (see `python -m simulation --help`)")


def parse(arguments: Sequence[str] | None = None) -> Options:
    """Options from `arguments`, or from those of this process. Raises UsageError; its message is one line."""
    parser = _Parser("simulation", description=f"vLLM's API served by {SERVER}.", allow_abbrev=False)
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1; 0, the default: a free one")
    parser.add_argument("--host", default=HOST)
    parser.add_argument("--ready-file", type=Path, help="gets url, port and pid as JSON once requests are taken")
    parser.add_argument("--seed", type=int, default=0, help="decides which requests the faults strike")
    parser.add_argument("--plain", action="store_true", help="play a server without vLLM's extras")
    parser.add_argument("--like", metavar="NAME", help=f"take the figures of {', '.join(PRESETS)}")
    for name, about in ABOUT.items():
        default = getattr(Load, name)
        about = f"{about}; {default} by default, or what --like says"
        parser.add_argument("--" + name.replace("_", "-"), type=type(default), dest=name, help=about)
    about = "compute every prompt in full"
    parser.add_argument("--no-prefix-cache", action="store_const", const=False, dest="prefix_cache", help=about)
    for rate in fields(Faults):
        name = "--fault-" + rate.name.replace("_", "-")
        parser.add_argument(name, type=float, default=0.0, metavar="RATE", dest=rate.name)
    found = vars(parser.parse_args(arguments))
    load = parameters.load(found.pop("like"), **{field.name: found.pop(field.name) for field in fields(Load)})
    faults = Faults(**{rate.name: found.pop(rate.name) for rate in fields(Faults)}).check()
    return Options(load=load, faults=faults, **found)


def split(line: str) -> list[str]:
    """The arguments in one line of options, as a shell splits them. Raises UsageError if they can't be used.

    Where it listens is not among them: whoever starts the server decides that.
    """
    try:
        arguments = shlex.split(line)
    except ValueError as error:
        raise UsageError(f"the simulated model's options can't be read ({error}): {line}") from None
    options = parse(arguments)
    if options.port or options.ready_file or options.host != HOST:
        raise UsageError("the simulated model's options can't say where it listens: give --model-port instead")
    return arguments
