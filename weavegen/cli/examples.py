"""Commands about the examples that retrieval is seeded with."""

from pathlib import Path
from typing import Annotated

import typer

from weavegen.cli.app import Json, app, out, print_json, reading

examples = typer.Typer(no_args_is_help=True, help="Good blocks that retrieval is seeded with.")
app.add_typer(examples, name="examples")


@examples.command()
def load(
    paths: Annotated[
        list[Path] | None, typer.Argument(help="TOML files, or folders of them; the project's own by default.")
    ] = None,
    json: Json = False,
) -> None:
    """Load examples; those that are there already are left alone.

    Example: weavegen examples load bootstraps/examples
    """
    from weavegen.engine.enqueueing import BOOTSTRAPS
    from weavegen.store import examples as store

    found = [example for path in paths or [BOOTSTRAPS / "examples"] for example in store.read(path)]
    with reading() as conn:
        new = store.load(conn, found)
        conn.commit()
    if json:
        print_json({"examples": len(found), "new": new})
    else:
        out.print(f"{len(found)} examples, {new} of them new")
