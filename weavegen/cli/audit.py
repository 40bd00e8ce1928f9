"""The command that proves that nothing was lost or doubled."""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from weavegen import config as configuration
from weavegen.cli.app import Json, app, out, print_json, reading
from weavegen.errors import UsageError
from weavegen.monitoring import display

if TYPE_CHECKING:
    from weavegen.audit import Outcome, Report

SUBJECTS = ("traces", "ticks", "blocks", "candidates", "steps", "environments")
"""Of what there was to look at: the sums that people know."""


@app.command()
def audit(
    job: Annotated[int | None, typer.Option(help="Only the traces of this job.")] = None,
    trace: Annotated[int | None, typer.Option(help="Only this trace.")] = None,
    grace: Annotated[
        float, typer.Option(min=0, help="Seconds that what is in motion may take before it counts as stuck.")
    ] = 60.0,
    host: Annotated[
        bool, typer.Option("--host/--no-host", help="Look at this host's processes and files.")
    ] = True,
    every: Annotated[bool, typer.Option("--all", help="List the checks that found nothing, too.")] = False,
    json: Json = False,
) -> None:
    """Prove that nothing was lost or doubled: journal, blocks, candidates, rewards, environments.

    It only reads, and may run while the workers do. Exit code 1 if it found damage. Each check: docs/audit.md.

    Example: weavegen audit --job 3
    """
    from weavegen.audit import Scope
    from weavegen.audit import audit as examine

    if job is not None and trace is not None:
        raise UsageError("give --job or --trace, not both")
    with reading() as conn:
        report = examine(conn, Scope(job=job, trace=trace), grace, configuration.load() if host else None)
    if json:
        print_json({"damage": report.damage, "remarks": report.remarks, "paused": report.paused,
                    "checks": report.outcomes})  # fmt: skip
    else:
        show(report, table=every, host=host)
    raise typer.Exit(1 if report.damage else 0)


def show(report: "Report", *, table: bool, host: bool) -> None:
    """For people: what was found, by check, then what was looked at; before that, with `table`, a line a check."""
    if table:
        out.print(table_of(report))
        out.print()
    for outcome in report.outcomes:
        if outcome.found:
            show_findings(outcome)
    if report.paused:
        out.print("The installation is down: what only waits for `weavegen up` counts as a remark.")
    seen = "; ".join(f"{subject}: {report.counts[subject]:,}" for subject in SUBJECTS)
    out.print(f"checks: {len(report.outcomes)}; {seen}{'; this host' if host else ''}")
    damage = f"damage: {report.damage:,} findings" if report.damage else "no damage"
    out.print(f"{damage}, {report.remarks:,} remarks", style="bold red" if report.damage else "bold")


def table_of(report: "Report") -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("check", no_wrap=True)
    table.add_column("looked at", justify="right")
    table.add_column("found", justify="right")
    table.add_column("proves that")
    for outcome in report.outcomes:
        style = "" if not outcome.found else "yellow" if outcome.remark else "red"
        found = f"{outcome.found:,}" if outcome.found else ""
        table.add_row(outcome.name, f"{outcome.looked_at:,}", found, outcome.proves, style=style)
    return table


def show_findings(outcome: "Outcome") -> None:
    from weavegen.audit import MAX_FINDINGS

    kind = "remark" if outcome.remark else "damage"
    out.print(f"{kind}: {outcome.name}", style="bold")
    if not outcome.remark:
        out.print(f"  should hold: {outcome.proves}", style="dim", markup=False)
    for finding in outcome.findings:
        where = finding.place if finding.trace is None else f"trace {finding.trace}, {finding.place}"
        out.print(escape(display.harmless(f"  {where}: {finding.problem}")), soft_wrap=True)
    if outcome.found > MAX_FINDINGS:
        out.print(f"  and {outcome.found - MAX_FINDINGS:,} more")
    out.print()
