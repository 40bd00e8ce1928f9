"""The command refresh: recomputes the materialised views."""

from typing import Annotated

import typer

from weavegen.cli.app import Result, command, print_part, reading


@command()
def refresh(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[VIEW]...", help="Views. Default: all materialised views.")
    ] = None,
    json: bool = False,
) -> Result:
    """Recompute the materialised views from the tables. Queries of these views do not wait meanwhile.

    Between `up` and `down` this happens about every minute anyway, and less often for views that take long. The
    views and their ages: `weavegen sql "select * from freshness"`.

    Example: weavegen refresh
    """
    from weavegen.store.views import refresh as views

    refreshed = []
    with reading() as conn:
        for view in views.refresh(conn, names or ()):
            refreshed.append(view)
            if not json:
                print_part(f"{view.view}: {view.rows:,} rows in {view.seconds:.1f} s")
    return Result(refreshed)
