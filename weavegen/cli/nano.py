"""The command nano serve: serves a small language model on the CPU."""

from pathlib import Path
from typing import Annotated

import typer

from weavegen.cli.app import app
from weavegen.nano import WEIGHTS

nano = typer.Typer(
    no_args_is_help=True, help="Serve a small language model on the CPU through vLLM's API (docs/nano.md)."
)
app.add_typer(nano, name="nano")


@nano.command()
def serve(
    model: Annotated[
        Path,
        typer.Argument(
            help="A folder with a Llama model in Hugging Face's format and its tokenizer.",
            show_default="weavegen-nano",
        ),
    ] = WEIGHTS,
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1; 0: any free port.")] = 8018,
    name: Annotated[
        str | None, typer.Option(help="The model's name in the API. Default: the folder's name.")
    ] = None,
    slots: Annotated[
        int, typer.Option(min=1, help="Maximal number of continuations that are sampled at the same time.")
    ] = 256,
    cache_tokens: Annotated[
        int, typer.Option(min=0, help="Size of the prefix cache in tokens; 0: no cache.")
    ] = 65_536,
    ready_file: Annotated[
        Path | None,
        typer.Option(help="Write url, port and pid to this file as JSON when the server is ready.", hidden=True),
    ] = None,
) -> None:
    """Serve a model in the foreground: weavegen's own, or another one of up to about ten million parameters.

    Example: weavegen nano serve --port 8018
    """
    from weavegen.nano import http
    from weavegen.nano.server import NanoApi

    api = NanoApi(model, name=name, slots=slots, cache_tokens=cache_tokens)
    about = f"; {api.engine.model.parameters:,} parameters, window {api.window:,}"
    http.serve(api, port, about=about, ready_file=ready_file)
