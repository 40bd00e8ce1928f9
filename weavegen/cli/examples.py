"""The command examples load: adds hand-written blocks that retrieval may return."""

from pathlib import Path
from typing import Annotated

import typer

from weavegen.cli.app import Result, app, command, writing

examples = typer.Typer(no_args_is_help=True, help="Manage the examples: hand-written blocks for retrieval.")
app.add_typer(examples, name="examples")


@command(group=examples)
def load(
    paths: Annotated[
        list[Path] | None, typer.Argument(help="TOML files, or folders of them. Default: the project's examples.")
    ] = None,
) -> Result:
    """Load examples. Those that are already loaded stay unchanged.

    Example: weavegen examples load bootstraps/examples
    """
    from weavegen.engine.enqueueing import BOOTSTRAPS
    from weavegen.store import examples as store

    loaded = [example for path in paths or [BOOTSTRAPS / "examples"] for example in store.read(path)]
    with writing() as conn:
        new = store.load(conn, loaded)
    return Result({"examples": len(loaded), "new": new}, f"{len(loaded)} examples, {new} of them new")
