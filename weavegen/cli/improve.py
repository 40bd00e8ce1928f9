"""The command improve: rounds in which a model learns from its own traces, and the best model is kept."""

import contextlib
import secrets
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.table import Table

from weavegen import config as configuration
from weavegen import sql
from weavegen.cli import display, evaluate, rescore
from weavegen.cli.app import Result, command, reading, writing
from weavegen.cli.jobs import Param, Set, by_type, pairs
from weavegen.cli.pool import load_adapter, members, unload_adapter
from weavegen.cli.tune import Model, Training, Where, collect, train
from weavegen.cli.watch import show as wait
from weavegen.errors import UsageError, WeavegenError
from weavegen.evaluator.calibration import Pair, figures, fit
from weavegen.evaluator.evaluation import HELD_OUT, SETTINGS, judged
from weavegen.evaluator.rubrics import WILL_RUN, parse
from weavegen.folders import locked
from weavegen.pool import served
from weavegen.store import campaigns, reports
from weavegen.store.jobs import merged
from weavegen.text import number
from weavegen.training import rounds as state
from weavegen.training.plan import TunePlan
from weavegen.training.rounds import ADAPTER, Loop, Order, Round
from weavegen.version import __version__

SERVE_SECONDS = 600.0
"""Time that a server may take to serve new weights after the command of --serve."""
POLL_SECONDS = 1.0
MOST_ROUNDS = 100
"""The seed of a round's jobs is the loop's seed times this, plus the round's number."""


@command()
def improve(
    model: Model,
    files: Annotated[list[str], typer.Argument(help="Bootstrap files, or patterns such as 'my_bootstraps/*.py'.")],
    training: Training,
    to: Annotated[Path, typer.Option("--out", "-o", help="The loop's folder. Repeat the command to continue.")],
    rounds: Annotated[int, typer.Option(min=1, max=MOST_ROUNDS - 1, help="Maximum number of rounds.")] = 5,
    patience: Annotated[int, typer.Option(min=1, help="Stop after this many rounds without a new best model.")] = 3,
    n: Annotated[int, typer.Option("-n", "--count", min=1, help="Traces of each file in a round.")] = 64,
    held_out: Annotated[int, typer.Option(min=1, help="Traces of each file in each of an evaluation's jobs.")] = 64,
    ticks: Annotated[int | None, typer.Option(min=1, help=f"Per trace. Default: {evaluate.DEFAULT_TICKS}.")] = None,
    param: Param = None,
    set_: Set = None,
    set_writing: Annotated[
        list[str] | None,
        typer.Option(help="Like --set, but only for the traces to learn from, such as search=execute; repeatable."),
    ] = None,
    where: Where = None,
    all_traces: Annotated[bool, typer.Option("--all-traces", help="Imitate failed traces, too.")] = False,
    serve: Annotated[
        str | None,
        typer.Option(
            metavar="COMMAND",
            help="Instead of loading models into running servers: a command that restarts them, with {folder} for "
            "the new weights and {name} for the name to serve them under.",
        ),
    ] = None,
) -> Result:
    """Let a model learn from its own traces in rounds, and keep the best model.

    In a round the best model so far writes traces, the base model is trained on the outcomes of all rounds, and
    the result is measured on held-out seeds. The folder gets report.html, an adapter for each round, and `best`.
    The same command continues a loop that was killed. docs/improve.md has the rules.

    Example: weavegen improve Qwen/Qwen3-8B 'my_bootstraps/*.py' --lora 32 -n 200 --ticks 40 -o loop
    """
    settings = {"ticks": evaluate.DEFAULT_TICKS} | by_type(pairs(set_)) | ({} if ticks is None else {"ticks": ticks})
    order = Order(
        files=files, params=pairs(param), settings=settings, writing=by_type(pairs(set_writing)), traces=n,
        held_out=held_out, seed=training.seed, where=where or [], all_traces=all_traces,
        tune=training.plan(model),
    )  # fmt: skip
    with begun(to, order) as loop:
        driver = Driver(to, loop, training.launcher(), serve)
        why = driver.run(rounds, patience)
    best = loop.best()
    shown: list[RenderableType] = [table(loop.rounds), f"{why}; the best is {driver.title(best)}: {to / 'report.html'}"]
    value = {"out": str(to), "stopped": why, "best": best.number, "model": driver.name(best.number)}
    return Result(value | {"rounds": loop.rounds}, shown)


@contextlib.contextmanager
def begun(folder: Path, order: Order) -> Iterator[Loop]:
    """The loop in a folder, which is locked against other processes. Raises UsageError if it is another loop."""
    from weavegen.engine import enqueueing

    if not 0 <= order.seed * MOST_ROUNDS < HELD_OUT:
        raise UsageError(f"--seed is {order.seed}: give one from 0 to {HELD_OUT // MOST_ROUNDS - 1}")
    enqueueing.orders(order.files, 1, order.params)
    enqueueing.check_services(configuration.load(), None, workers=True)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder} can't be made ({error.strerror}): give another --out") from None
    with locked(folder / ".lock", timeout=0):
        if (loop := state.load(folder)) is None:
            if any(path.name != ".lock" for path in folder.iterdir()):
                raise UsageError(f"{folder} has other files: give another --out")
            loop = Loop(name=f"improve-{secrets.token_hex(3)}", order=order)
            state.save(folder, loop)
        if other := state.differences(loop.order, order):
            raise UsageError(f"{folder} was begun with other values of {', '.join(other)}: give those or another --out")
        yield loop


class Driver:
    """Runs the phases of a loop. A phase that is complete is not repeated; one that was interrupted begins again."""

    def __init__(self, folder: Path, loop: Loop, launcher: list[str], serve: str | None) -> None:
        self.folder, self.loop, self.launcher, self.serve = folder.absolute(), loop, launcher, serve
        self.console = display.console(stderr=True)

    def run(self, most: int, patience: int) -> str:
        """Run rounds until the loop is over. Returns why."""
        rounds = self.loop.rounds
        while True:
            if not rounds or rounds[-1].evaluation is not None:
                if rounds and (why := self.loop.over(most, patience)) is not None:
                    self.publish()
                    return why
                rounds.append(Round(number=len(rounds), writer=self.loop.best().number if rounds else None))
                self.save()
            round = rounds[-1]
            for phase in (self.write, self.train) * (round.number > 0) + (self.evaluate,):
                began = time.monotonic()
                if phase(round):
                    round.seconds[phase.__name__] = time.monotonic() - began
                    self.save()
            self.publish()

    def save(self) -> None:
        state.save(self.folder, self.loop)

    def write(self, round: Round) -> bool:
        """Let the best model write traces."""
        from weavegen.engine import enqueueing

        if "write" in round.seconds:
            return False
        order, writer = self.loop.order, self.loop.rounds[round.writer or 0]
        settings = merged(order.settings, order.writing)
        if writer.corrections:
            settings |= {"corrections": writer.corrections}
        seed = order.seed * MOST_ROUNDS + round.number
        self.say(round, f"{self.title(writer)} writes")
        model = self.served(writer.number)
        traces = enqueueing.orders(order.files, order.traces, order.params)
        wait(self.once(round, "write", traces=traces, model=model, seed=seed, settings=settings), stderr=True)
        self.require(round, "write")
        return True

    def train(self, round: Round) -> bool:
        """Train the base on the outcomes of all rounds. The adapter gets its name when it is complete."""
        own = self.own(round.number)
        if (own / ADAPTER).exists():
            return False
        self.say(round, "the base learns from the outcomes of all rounds")
        shutil.rmtree(own, ignore_errors=True)
        own.mkdir()
        plan = replace(self.loop.order.tune, data=str(own / "data"), out=str(own / "training"))
        round.rows = self.collect(plan)
        Path(plan.out).mkdir()
        round.losses = train(self.launcher, plan, own)
        self.save()
        Path(plan.out).rename(own / ADAPTER)
        return True

    def collect(self, plan: TunePlan) -> dict[str, int]:
        """Export what the traces of all rounds teach. Returns the rows of each export."""
        jobs = [round.jobs["write"] for round in self.loop.rounds[1:]]
        with reading() as conn:
            rows = [row for job in jobs for row in sql.run(conn, "evaluator/traces", job=job)]
        where = [f"job_id in ({', '.join(map(str, jobs))})", *self.loop.order.where]
        imitating = [method for method in plan.methods if method not in ("dpo", "kto")]  # those compare
        if imitating and not self.loop.order.all_traces:
            won = [row.trace for row in rows if row.success]
            advice = "begin another folder with a greater -n, an easier task, or --all-traces"
            if not won:
                raise UsageError(f"none of the {len(rows)} traces succeeded, so there is nothing to imitate: {advice}")
            where += [f"{method}:trace_id in ({', '.join(map(str, won))})" for method in imitating]
        return collect(plan, where)

    def evaluate(self, round: Round) -> bool:
        """Measure the round's model on held-out seeds, decide whether it is the best, and recalibrate its judge."""
        order = self.loop.order
        self.say(round, f"{self.title(round)} is measured")
        model = self.served(round.number)

        def enqueue(name: str, **job: Any) -> int:
            return self.once(round, name.removeprefix("eval "), **job)

        measured = evaluate.run(model, order.files, order.held_out, order.settings, None, order.params, enqueue=enqueue)
        self.require(round, *SETTINGS)
        with reading() as conn:
            labels = [pair for _, pair in judged(conn, round.jobs["unaided"])]
        with contextlib.suppress(UsageError):  # there are too few labels
            line = fit(WILL_RUN, labels)
            round.corrections, round.brier = {WILL_RUN: (line.slope, line.intercept)}, line.brier_after
        round.auc = self.auc_of_base(round, model) if round.number else area(labels)
        round.evaluation = measured
        self.loop.judge(round)
        return True

    def auc_of_base(self, round: Round, model: str | None) -> float | None:
        """The AUC of a round's answers about the actions that the base executed; None: unknown.

        The better a model writes, the less easily its own errors are recognised. These actions are the same for all.
        """
        job, name = self.loop.rounds[0].jobs["unaided"], f"{self.loop.name} round {round.number}: judge"
        with writing() as conn:
            ids = [block for block, _ in judged(conn, job)]
            if ids and not any(row.name == name for row in campaigns.rows(conn)):
                rubric, where = parse(f'[questions]\naction = ["{WILL_RUN}"]\n'), f"job_id = {job}"
                campaigns.create(conn, name, rubric, "blocks", ids, condition=where, model=model, version=__version__)
        if not ids:
            return None
        with reading() as conn:
            rescore.watch(conn, name, stderr=True)
            return area([pair for _, pair in judged(conn, job, name)])

    def once(self, round: Round, what: str, **job: Any) -> int:
        """Enqueue a job, unless that was done before: a kill may have come before the state was saved."""
        from weavegen.engine import enqueueing

        name = f"{self.loop.name} round {round.number}: {what}"
        with reading() as conn:
            found = sql.run(conn, "store/job_named", name=name).scalar_one_or_none()
        round.jobs[what] = enqueueing.enqueue(name=name, **job) if found is None else found
        self.save()
        return round.jobs[what]

    def require(self, round: Round, *jobs: str) -> None:
        """Raise WeavegenError if all traces of a job failed: that says nothing about the model."""
        for job in (round.jobs[what] for what in jobs):
            with reading() as conn:
                [row] = reports.jobs(conn, job)
            if row.failed == row.traces:
                advice = f"see `weavegen status {job}`; after `weavegen retry` the same command goes on"
                raise WeavegenError(f"all traces of job {job} failed: {advice}")

    def served(self, number: int) -> str | None:
        """Let the pool serve a round's model. Returns its name; None: the pool's own model."""
        name, folder = self.name(number), self.own(number) / ADAPTER
        if self.serve is None:
            if name is not None:
                load_adapter(name, folder)
            return name
        until = None
        while True:
            with contextlib.suppress(UsageError):
                served.serving(members(), name)
                return name
            if until is None:
                places = {"folder": str(folder) if number else self.loop.order.tune.model, "name": str(name)}
                try:
                    subprocess.run([part.format(**places) for part in shlex.split(self.serve)], check=True, stdout=2)
                except (OSError, ValueError, LookupError, subprocess.CalledProcessError) as error:
                    raise UsageError(f"--serve failed: {error}") from None
                until = time.monotonic() + SERVE_SECONDS
            if time.monotonic() > until:
                raise WeavegenError(f"no server serves {name} {SERVE_SECONDS:.0f} s after --serve")
            time.sleep(POLL_SECONDS)

    def name(self, number: int) -> str | None:
        """The name under which a round's model is served."""
        return f"{self.loop.name}-{number}" if number or self.serve is not None else None

    def own(self, number: int) -> Path:
        return self.folder / f"round-{number}"

    def title(self, round: Round) -> str:
        return f"the model of round {round.number}" if round.number else "the base"

    def say(self, round: Round, text: str) -> None:
        self.console.print(f"round {round.number}: {text}", highlight=False)

    def publish(self) -> None:
        """Write the report, link `best` to the best adapter, and unload all other models."""
        from weavegen.viewer import rounds_page

        rounds_page.write(self.folder, self.loop, list(lines(self.loop.rounds)))
        self.console.print(table(self.loop.rounds))
        best = self.loop.best().number
        if best:
            draft = self.folder / ".best"
            draft.unlink(missing_ok=True)
            draft.symlink_to(f"round-{best}/{ADAPTER}")
            draft.replace(self.folder / "best")
        if self.serve is None:
            for round in self.loop.rounds[1:]:
                if round.number != best:
                    with contextlib.suppress(UsageError):  # no server answers now: they may have it until they end
                        unload_adapter(str(self.name(round.number)))


def area(labels: Sequence[Pair]) -> float | None:
    """The AUC of answers; None: it is not defined."""
    return figures(WILL_RUN, "ran", labels).auc if labels else None


def lines(rounds: list[Round]) -> Iterator[tuple[str, list[str]]]:
    """The name of each measure, with a cell for each round that was evaluated."""
    done = [round for round in rounds if round.evaluation is not None]
    yield from evaluate.lines([round.evaluation for round in done if round.evaluation is not None])
    yield "will it run? AUC on the base's actions", [number(round.auc, "{:.2f}") for round in done]
    yield "will it run? Brier score, corrected", [number(round.brier, "{:.3f}") for round in done]


def table(rounds: list[Round]) -> Table:
    """A column for each round."""
    from weavegen.viewer import rounds_page

    headings = [rounds_page.heading(round) for round in rounds if round.evaluation is not None]
    return evaluate.table(headings, lines(rounds))
