"""`python -m tests.compat FOLDER`: run each bootstrap file of a folder as it is, and print the results.

It runs the file's own first tick, then two further ticks that the simulation writes, in a real installation, with
default settings. Files that register no action by `self.add_action` use an older interface, and are listed. Exit code
1 if a first or a further tick fails.
"""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.support.installation import Installation, installed
from weavegen import config as configuration
from weavegen.engine import enqueueing
from weavegen.errors import WeavegenError
from weavegen.kernel.steps import Executed
from weavegen.sandbox import packages
from weavegen.sandbox.environment import dry_run

WAIT_SECONDS = 900.0


@dataclass
class Outcome:
    """The result of a file."""

    name: str
    first: str = ""
    """"ok", or why its first tick failed."""
    checks: str = ""
    """How many of its own evaluations ran, and why the others did not."""
    further: str = ""
    """How its trace ended after two further ticks, or why it failed."""

    @property
    def failed(self) -> bool:
        return self.first != OLDER and not (self.first == "ok" and self.further.startswith(ENDED))


OLDER = "older interface: it does not use self.add_action"
ENDED = "ended: "


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.compat", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--files", type=Path, help="a folder whose files are in /app at the start, for files that read some"
    )
    options = parser.parse_args()
    files = sorted(options.folder.glob("*.py"))
    if not files:
        sys.stderr.write(f"compat: {options.folder} has no Python files\n")
        return 2
    console, outcomes = Console(width=170, highlight=False), []
    for file in files:
        outcomes.append(first_tick(file, options.files))
        console.print(file.name, outcomes[-1].first, markup=False)
    with installed() as installation:
        for outcome in outcomes:
            if outcome.first != OLDER:
                outcome.further = further_ticks(installation, options.folder / outcome.name, options.files)
                console.print(outcome.name, outcome.further, markup=False)
    console.print(table(outcomes))
    return int(any(outcome.failed for outcome in outcomes))


def first_tick(file: Path, files: Path | None) -> Outcome:
    """Run the file's own tick in a box. The evaluator always answers 50%."""
    source = file.read_text()
    if "self.add_action(" not in source:
        return Outcome(file.name, OLDER)
    config = configuration.load()
    try:
        [order] = enqueueing.orders([file])
        archive = enqueueing.pack_files([order], files)
        done = dry_run(
            config,
            source,
            ops=("bootstrap", "evaluate", "begin"),
            packages=packages.on_this_host(config, packages.usual(config)),
            files=enqueueing.files_here(config, archive),
        )
    except WeavegenError as error:
        return Outcome(file.name, str(error))
    if done[0].error is not None:
        return Outcome(file.name, f"{done[0].error.type}: {done[0].error.message}")
    return Outcome(file.name, "ok", checks(done[1]) if len(done) > 1 else "")


def checks(executed: Executed) -> str:
    failures = [f"{one.error.type}: {one.error.message}" for one in executed.evaluations if one.error is not None]
    ran = len(executed.evaluations) - len(failures)
    return "; ".join([f"{ran} of {len(executed.evaluations)}", *dict.fromkeys(failures)])


def further_ticks(installation: Installation, file: Path, files: Path | None) -> str:
    given = [] if files is None else ["--files", str(files)]
    done = installation.cli("run", file, "--ticks", "2", "--seed", "1", *given, "--json", timeout=WAIT_SECONDS)
    if done.returncode == 2:
        return " ".join(done.stderr.split())
    [[status, because, ticks]] = installation.sql(
        "select status, coalesce(failure, ended_because, ''), ticks from traces order by id desc limit 1"
    )
    return f"{status}: {because}, {ticks} ticks"


def table(outcomes: list[Outcome]) -> Table:
    shown = Table(box=None, title="Bootstrap files as they are")
    for name in ("file", "first tick", "its evaluations that ran", "two further ticks"):
        shown.add_column(name, overflow="fold")
    for outcome in outcomes:
        shown.add_row(outcome.name, outcome.first[:200], outcome.checks[:200], outcome.further[:120])
    return shown


if __name__ == "__main__":
    sys.exit(main())
