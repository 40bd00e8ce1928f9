"""The command audit: proves that no record was lost or doubled."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import RenderableType
from rich.text import Text

from weavegen import config as configuration
from weavegen.cli import display
from weavegen.cli.app import Result, command, reading
from weavegen.errors import UsageError

if TYPE_CHECKING:
    from weavegen.audit.check import Outcome, Report

SUBJECTS = ("traces", "ticks", "blocks", "candidates", "steps", "environments")
"""What the last lines count."""


@command()
def audit(
    job: Annotated[int | None, typer.Option(help="Check only the traces of this job.")] = None,
    trace: Annotated[int | None, typer.Option(help="Check only this trace.")] = None,
    grace: Annotated[float, typer.Option(min=0, help="Seconds after which unfinished work counts as stuck.")] = 60.0,
    host: Annotated[bool, typer.Option("--host/--no-host", help="Also check this host's processes and files.")] = True,
    every: Annotated[bool, typer.Option("--all", help="Also list the checks that found nothing.")] = False,
) -> Result:
    """Prove that no record was lost or doubled: journal, blocks, candidates, rewards, environments.

    It only reads, and may run beside the workers. The exit code is 1 if it found damage. Each check is described
    in docs/audit.md.

    Example: weavegen audit --job 3
    """
    from weavegen.audit.check import Scope
    from weavegen.audit.prove import audit as run_checks

    if job is not None and trace is not None:
        raise UsageError("give --job or --trace, not both")
    with reading() as conn:
        report = run_checks(conn, Scope(job=job, trace=trace), grace, configuration.load() if host else None)
    value = {"damage": report.damage, "remarks": report.remarks, "paused": report.paused, "checks": report.outcomes}
    return Result(value, parts(report, every=every, host=host), code=1 if report.damage else 0)


def parts(report: "Report", *, every: bool, host: bool) -> Iterator[RenderableType]:
    """The table of all checks, if `every`; then the findings by check, and the sums."""
    if every:
        columns: display.Fields = {
            "check": "name",
            "looked at": "looked_at",
            "found": lambda outcome: outcome.found or None,
            "proves that": "proves",
        }
        table = display.table(report.outcomes, columns)
        for row, outcome in zip(table.rows, report.outcomes, strict=True):
            row.style = "" if not outcome.found else "yellow" if outcome.remark else "red"
        yield table
        yield ""
    for outcome in report.outcomes:
        if outcome.found:
            yield from findings(outcome)
    if report.paused:
        yield "The installation is down: work that waits for `weavegen up` counts as a remark."
    counts = "; ".join(f"{subject}: {report.counts[subject]:,}" for subject in SUBJECTS)
    yield f"checks: {len(report.outcomes)}; {counts}{'; this host' if host else ''}"
    damage = f"damage: {report.damage:,} findings" if report.damage else "no damage"
    yield Text(f"{damage}, {report.remarks:,} remarks", "bold red" if report.damage else "bold")


def findings(outcome: "Outcome") -> Iterator[RenderableType]:
    yield Text(f"{'remark' if outcome.remark else 'damage'}: {outcome.name}", "bold")
    if not outcome.remark:
        yield Text(f"  should hold: {outcome.proves}", "dim")
    for finding in outcome.findings:
        where = finding.place if finding.trace is None else f"trace {finding.trace}, {finding.place}"
        yield f"  {where}: {finding.problem}"
    if more := outcome.found - len(outcome.findings):
        yield f"  and {more:,} more"
    yield ""
