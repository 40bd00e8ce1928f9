"""The command that fills materialised views anew: refresh."""

from dataclasses import asdict
from typing import Annotated

import typer

from weavegen.cli.app import Json, app, out, print_json, reading


@app.command()
def refresh(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[VIEW]...", help="All that are materialised by default.")
    ] = None,
    json: Json = False,
) -> None:
    """Fill the materialised views anew, from what the tables hold now. Who reads them meanwhile does not wait.

    Between `up` and `down` that is done every minute or so anyway; less often, the longer it takes. Which there
    are and how old they are: `weavegen sql "select * from freshness"`.

    Example: weavegen refresh
    """
    from weavegen.store.views import refresh as views

    with reading() as conn:
        done = []
        for one in views.refresh(conn, names or ()):
            done.append(one)
            if not json:
                out.print(f"{one.view}: {one.rows:,} rows in {one.seconds:.1f} s", markup=False, highlight=False)
    if json:
        print_json([asdict(one) for one in done])
