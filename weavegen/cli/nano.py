"""weavegen nano: a small model served on the CPU."""

from pathlib import Path
from typing import Annotated

import typer

from weavegen.cli.app import app
from weavegen.nano import WEIGHTS

nano = typer.Typer(no_args_is_help=True, help="A small language model on the CPU, by vLLM's API (docs/nano.md).")
app.add_typer(nano, name="nano")


@nano.command()
def serve(
    model: Annotated[
        Path,
        typer.Argument(
            help="A folder: a Llama in Hugging Face's format, and its tokenizer.", show_default="weavegen-nano"
        ),
    ] = WEIGHTS,
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1; 0 for a free one.")] = 8018,
    name: Annotated[str | None, typer.Option(help="What it is called; by default as its folder.")] = None,
    slots: Annotated[int, typer.Option(min=1, help="Continuations that are sampled at once.")] = 256,
    cache_tokens: Annotated[
        int, typer.Option(min=0, help="Tokens of prompts that are remembered; 0: none.")
    ] = 65_536,
    ready_file: Annotated[
        Path | None, typer.Option(help="Gets url, port and pid as JSON once requests are taken.", hidden=True)
    ] = None,
) -> None:
    """Serve a model in the foreground: weavegen's own, or another of up to some ten million parameters.

    Example: weavegen nano serve --port 8018
    """
    from weavegen.nano import http
    from weavegen.nano.server import NanoApi

    api = NanoApi(model, name=name, slots=slots, cache_tokens=cache_tokens)
    about = f"; {api.engine.model.parameters:,} parameters, window {api.window:,}"
    http.serve(api, port, about=about, ready_file=ready_file)
