"""The command that trains a model on the corpus: tune."""

import contextlib
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from weavegen import sql
from weavegen.cli.app import Result, command, is_simulated, reading
from weavegen.cli.pool import load_adapter, members
from weavegen.errors import UsageError, WeavegenError
from weavegen.pool import adapters
from weavegen.training.plan import EXPORTS, RATES, TunePlan

Model = Annotated[str, typer.Argument(help="A folder in Hugging Face's format, or a model name on its hub.")]
Where = Annotated[
    list[str] | None,
    typer.Option(
        help='An SQL condition over the exports\' views, such as "job_id = 3"; FORMAT:CONDITION: for one '
        "export only; repeatable."
    ),
]


@dataclass(frozen=True)
class Training:
    """How a model is trained. Each field is an option of the command line."""

    method: Annotated[
        list[str] | None,
        typer.Option(help="sft, dpo, kto, text or trajectories; repeatable: run one after the other. Default: sft."),
    ] = None
    lora: Annotated[int, typer.Option(min=0, help="Rank of a LoRA adapter; 0: train all weights.")] = 0
    norms: Annotated[bool, typer.Option("--norms", help="Train only the norms' scales, for few examples.")] = False
    balance: Annotated[bool, typer.Option("--balance", help="sft: equal numbers of yes and no per question.")] = False
    replay: Annotated[
        float, typer.Option(min=0, help="sft: answers that the model drew itself, for each one known from execution.")
    ] = TunePlan.replay
    window: Annotated[int, typer.Option(min=64, help="Maximum number of tokens of an example.")] = TunePlan.window
    epochs: Annotated[float, typer.Option(min=0.01, help="Passes over the data.")] = TunePlan.epochs
    batch: Annotated[int, typer.Option(min=1, help="Examples per optimizer step.")] = TunePlan.batch
    rate: Annotated[float | None, typer.Option(min=0, help="Learning rate. Default: one for large models.")] = None
    most: Annotated[int, typer.Option(min=1, help="Maximum rows of an export, drawn at random.")] = TunePlan.most
    bf16_weights: Annotated[bool, typer.Option("--bf16", help="Load bfloat16 weights: half the memory.")] = False
    load_in_4bit: Annotated[bool, typer.Option("--load-in-4bit", help="Needs --lora, a GPU and bitsandbytes.")] = False
    gradient_checkpointing: Annotated[
        bool, typer.Option("--gradient-checkpointing", help="Use less memory for long windows, but more time.")
    ] = False
    merge: Annotated[bool, typer.Option("--merge", help="With --lora: add the adapter to the weights.")] = False
    multiple_of: Annotated[int, typer.Option(min=1, help="Pad to a multiple of N tokens.")] = TunePlan.multiple_of
    min_margin: Annotated[float | None, typer.Option(min=0, help="dpo: as for export; 0 takes near-ties too.")] = None
    seed: Annotated[int, typer.Option(help="Random seed of the training.")] = TunePlan.seed
    launch: Annotated[
        str | None,
        typer.Option(help='Command that starts training, such as "accelerate launch --config_file fsdp.yaml".'),
    ] = None

    def launcher(self) -> list[str]:
        """The command that starts the training program. Raises UsageError."""
        with contextlib.suppress(ValueError):  # an open quotation mark
            if launcher := shlex.split(self.launch) if self.launch else [sys.executable]:
                return launcher
        raise UsageError("--launch is no command: give one, such as .venv-gpu/bin/python")

    def plan(self, model: str) -> TunePlan:
        """The plan of a run, without its folders. Raises UsageError."""
        methods = tuple(self.method or ["sft"])
        if unknown := [name for name in methods if name not in EXPORTS]:
            raise UsageError(f"there is no method {unknown[0]!r}: choose from {', '.join(EXPORTS)}")
        if "kto" in methods and self.batch == 1:
            raise UsageError("--method kto compares the texts of a batch: give --batch 2 or more")
        if self.lora and self.norms:
            raise UsageError("--lora and --norms train different weights: give one of them")
        if not self.lora and (option := "--load-in-4bit" * self.load_in_4bit or "--merge" * self.merge):
            raise UsageError(f"{option} is for an adapter: give --lora RANK too")
        if self.load_in_4bit and self.merge:
            raise UsageError("--merge adds an adapter to whole weights: leave --load-in-4bit out")
        rates = RATES if self.lora or self.norms else {name: rate / 10 for name, rate in RATES.items()}
        rates = rates if self.rate is None else dict.fromkeys(RATES, self.rate)
        shared = {name: value for name, value in vars(self).items() if name in TunePlan.__dataclass_fields__}
        return TunePlan(model=model, data="", out="", methods=methods, rates=rates, **shared)


@command()
def tune(
    model: Model,
    to: Annotated[Path, typer.Option("--out", "-o", help="The folder to write. It must not exist.")],
    training: Training,
    where: Where = None,
    load: Annotated[str | None, typer.Option(metavar="NAME", help="Load it into the pool under this name.")] = None,
) -> Result:
    """Train a model on the corpus: one round of the loop in which a model learns from its own traces.

    It exports the rows that --where selects, trains with TRL, and writes weights or an adapter. docs/tuning.md
    shows the loop. It needs PyTorch: pip install "weavegen[training]", in this environment or in that of
    --launch.

    Example: weavegen tune Qwen/Qwen3-8B --lora 32 --where "job_id = 3" -o round-1 --load r1
    """
    plan = replace(training.plan(model), data=str(to.absolute() / "data"), out=str(to.absolute()))
    launcher = training.launcher()
    if to.exists():
        raise UsageError(f"{to} exists: give another folder")
    if load is not None:
        adapters.require_new(members(), load)
    try:
        rows = collect(plan, where or [])
        losses = train(launcher, plan, to)
    except BaseException as error:  # Ctrl-C, too: the same command can be given again
        if type(error) is not WeavegenError:  # what a failed training leaves may say why
            shutil.rmtree(to, ignore_errors=True)
        raise
    if load is not None and not load_adapter(load, to):
        raise WeavegenError(f"{to} is trained, but {load} is back: `weavegen pool unload {load}`, then `pool load`")
    lines = [f"{name}: {count:,} rows" for name, count in rows.items()]
    lines.append(f"{to}: trained" + ("" if load is None else f", and served as {load}"))
    return Result({"out": str(to), "rows": rows, "losses": losses, "loaded": load}, lines)


def collect(plan: TunePlan, where: list[str]) -> dict[str, int]:
    """Write the exports that the methods read. Returns the rows of each. Raises UsageError if a method has none.

    Prompts that another model read are written as the trained model would read them, in the template of its folder.

    Unless a condition names job_id, the traces of evaluations are left out: on their tasks models are compared.
    """
    from weavegen import exports
    from weavegen.exports import write
    from weavegen.exports.format import Options
    from weavegen.exports.student import Student, for_student

    counts: dict[str, int] = {}
    empty: dict[str, UsageError] = {}
    own, writers = {plan.model, Path(plan.model).resolve().name}, set[str]()
    student: Student | UsageError
    try:
        student = Student(Path(plan.model))
    except UsageError as error:
        student = error
    with reading() as conn:
        measured = sql.run(conn, "evaluator/held_out_jobs").scalars()
    left_out = f"job_id not in ({', '.join(map(str, measured))})" if measured else ""
    Path(plan.data).mkdir(parents=True)
    for name in dict.fromkeys(name for method in plan.methods for name in EXPORTS[method]):
        others = tuple(f"{other}:" for names in EXPORTS.values() for other in names if other != name)
        conditions = [one.removeprefix(f"{name}:") for one in where if not one.startswith(others)]
        if left_out and not any("job_id" in condition for condition in conditions):
            conditions.append(left_out)
            typer.echo(f"{name}: without the jobs of evaluations: to take them, name job_id in --where", err=True)
        format = exports.find(name)
        has_prompts = "student" in format.takes
        wanted = write.Export(
            format=for_student(format, student, own) if has_prompts and isinstance(student, Student) else format,
            out=Path(plan.data) / name,
            where=" and ".join(f"({condition})" for condition in conditions) or None,
            simulation=is_simulated(),
            options=Options(min_margin=plan.min_margin if name == "dpo" else None),
        )
        try:
            with reading() as conn:
                written = write.export(conn, wanted)
            counts[name] = sum(written.rows.values())
            writers |= written.origin.models if has_prompts else set()
        except write.NothingToExport as error:
            counts[name], empty[name] = 0, error
    for method in plan.methods:
        if not any(counts[name] for name in EXPORTS[method]):
            raise empty[EXPORTS[method][0]]
    if isinstance(student, UsageError) and writers - own:
        read = ", ".join(sorted(writers - own))
        typer.echo(f"the prompts are in the chat template of {read}, which read them: {student}", err=True)
    return counts


def train(command: list[str], plan: TunePlan, folder: Path) -> dict[str, float]:
    """Write the plan into a folder, and run the training program. Returns the losses.

    The program ends when this process does: the write end of its standard input closes then, even after kill -9.
    Raises WeavegenError where it fails, and typer.Exit where it refuses the plan.
    """
    file = folder / "plan.json"
    file.write_bytes(msgspec.json.format(msgspec.json.encode(plan)))
    try:
        # Trainers print progress; standard output is for this command's result, which may be JSON.
        program = subprocess.Popen(
            [*command, "-m", "weavegen.training.tune", str(file), "--tied"], stdin=subprocess.PIPE, stdout=2
        )
    except OSError as error:
        raise UsageError(f"--launch: {command[0]} can't be started: {error.strerror}") from None
    with program:
        code = program.wait()
    if code == 2:  # it has said in one line what to do
        raise typer.Exit(code)
    if code != 0:
        hint = 'if a module is missing: pip install "weavegen[training]", or name its environment with --launch'
        raise WeavegenError(f"the training ended with exit code {code}; {hint}")
    return msgspec.json.decode((Path(plan.out) / "losses.json").read_bytes(), type=dict[str, float])
