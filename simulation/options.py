"""The command line of the simulation: `python -m simulation`, and `weavegen sim`, which forwards to it."""

import argparse
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
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
    "step_tokens": "maximum tokens in one step",
    "cache_tokens": "size of the KV cache",
    "max_model_len": "maximum tokens in a sequence",
    "scheduling_policy": " or ".join(POLICIES),
}
"""Help texts of the options that set a field of Load."""


@dataclass(frozen=True)
class Options:
    """The options with which a server is started."""

    port: int = 0
    """0 chooses a free port."""
    host: str = HOST
    ready_file: Path | None = None
    """Gets {"url", "port", "pid"} as JSON once requests are accepted."""
    seed: int = 0
    """The seed that decides which requests get a fault."""
    plain: bool = False
    """Behave as a server without vLLM's extras: no `/tokenize`, `/detokenize` and `/metrics`, no prompts of token
    ids, no `logprob_token_ids`."""
    chat: bool = False
    """Behave as a server that has only OpenAI's chat API: no `/v1/completions` either."""
    load: Load = field(default_factory=Load)
    faults: Faults = field(default_factory=Faults)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"the simulated model: {message} (see `python -m simulation --help`)")


def parse(arguments: Sequence[str] | None = None) -> Options:
    """Options from `arguments`, or from this process's own. Raises UsageError with a message of one line."""
    parser = _Parser("simulation", description=f"vLLM's API served by {SERVER}.", allow_abbrev=False)
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1; 0, the default: a free one")
    parser.add_argument("--host", default=HOST)
    parser.add_argument("--ready-file", type=Path, help="gets url, port and pid as JSON once it serves")
    parser.add_argument("--seed", type=int, default=0, help="decides which requests get a fault")
    parser.add_argument("--plain", action="store_true", help="behave as a server without vLLM's extras")
    parser.add_argument("--chat", action="store_true", help="serve OpenAI's chat API alone")
    parser.add_argument("--like", metavar="NAME", help=f"take the numbers of {', '.join(PRESETS)}")
    for name, about in ABOUT.items():
        default = getattr(Load, name)
        about = f"{about}; {default} by default, or what --like says"
        parser.add_argument("--" + name.replace("_", "-"), type=type(default), help=about)
    about = "compute every prompt in full"
    parser.add_argument("--no-prefix-cache", action="store_const", const=False, dest="prefix_cache", help=about)
    for rate in fields(Faults):
        option = "--fault-" + rate.name.replace("_", "-")
        parser.add_argument(option, type=float, default=0.0, metavar="RATE", dest=rate.name)
    values = vars(parser.parse_args(arguments))
    load = parameters.load(values.pop("like"), **{number.name: values.pop(number.name) for number in fields(Load)})
    faults = Faults(**{rate.name: values.pop(rate.name) for rate in fields(Faults)}).check()
    return Options(load=load, faults=faults, **values)


def split(line: str) -> list[str]:
    """The arguments in `weavegen up --sim-options`, as a shell splits them. Raises UsageError if one is invalid.

    The address is not an option here: `up` chooses it.
    """
    try:
        arguments = shlex.split(line)
    except ValueError as error:
        raise UsageError(f"the simulated model's options can't be read ({error}): {line}") from None
    options = parse(arguments)
    if options.port or options.ready_file or options.host != HOST:
        raise UsageError("the simulated model's options can't say where it listens: give --model-port instead")
    return arguments
