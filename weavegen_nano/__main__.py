"""`python -m weavegen_nano`, which `weavegen nano serve` and `weavegen up` start: a small model in the foreground."""

import argparse
import logging
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from weavegen.errors import UsageError
from weavegen.text import harmless
from weavegen_nano import WEIGHTS, http
from weavegen_nano.server import CACHE_TOKENS, SLOTS, NanoApi


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see `{self.prog} --help`)")


def _at_least(least: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r}: give a whole number of at least {least}")
        return int(text)

    return read


def parser() -> argparse.ArgumentParser:
    made = _Parser(
        "weavegen nano serve",
        description="Serve a model in the foreground over vLLM's API: weavegen's own, or another one of up to about "
        "ten million parameters.",
        allow_abbrev=False,
    )
    about = "a folder with a Llama model in Hugging Face's format and its tokenizer; default: weavegen-nano"
    made.add_argument("model", nargs="?", type=Path, default=WEIGHTS, help=about)
    made.add_argument("--host", default="127.0.0.1", help="the address to listen on; default: 127.0.0.1")
    made.add_argument("--port", type=int, default=8018, help="default: 8018; 0: any free port")
    made.add_argument("--name", help="the model's name in the API; default: the folder's name")
    about = f"maximum number of continuations that are sampled at the same time; default: {SLOTS}"
    made.add_argument("--slots", type=_at_least(1), default=SLOTS, help=about)
    about = f"size of the prefix cache in tokens; default: {CACHE_TOKENS}; 0: no cache"
    made.add_argument("--cache-tokens", type=_at_least(0), default=CACHE_TOKENS, help=about)
    made.add_argument("--ready-file", type=Path, help="gets url, port and pid as JSON once it serves")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until interrupted. Returns the exit code: 2 if an argument is invalid."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    http.logger.setLevel(logging.INFO)  # logs the address
    try:
        options = parser().parse_args(arguments)
        api = NanoApi(options.model, name=options.name, slots=options.slots, cache_tokens=options.cache_tokens)
        about = f"; {api.engine.model.parameters:,} parameters, window {api.window:,}"
        http.serve(api, options.port, options.host, about=about, ready_file=options.ready_file)
    except UsageError as error:
        sys.stderr.write(f"weavegen: {harmless(' '.join(str(error).split()))}\n")
        return 2
    except KeyboardInterrupt:
        # As the command line does: a shell and the tests see the code of an interrupt.
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
