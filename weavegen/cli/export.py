"""The command export: writes the corpus in the format of a trainer."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import RenderableType

from weavegen.cli import display
from weavegen.cli.app import QUERY_SECONDS, SIMULATED_DATA, Result, command, is_simulated, progress_bar, reading
from weavegen.cli.complete import export_formats
from weavegen.errors import UsageError
from weavegen.text import bytes_text, parse_size

if TYPE_CHECKING:
    from weavegen.exports import write
    from weavegen.exports.hub import Dataset

MAX_SHARD_BYTES = 1e12


@dataclasses.dataclass(frozen=True)
class ExportOptions:
    """The options of an export besides its format. Each field is an option of the command line."""

    out: Annotated[Path | None, typer.Option("--out", "-o", help="The folder to write. It must not exist.")] = None
    where: Annotated[str | None, typer.Option(help="An SQL condition over the format's view.")] = None
    split: Annotated[str, typer.Option(help="Shares of the traces, such as train=0.95,test=0.05.")] = "train=1"
    limit: Annotated[int | None, typer.Option(min=1, help="Take only the first N rows of the view.")] = None
    context: Annotated[int | None, typer.Option(min=1, help="text: cut into pieces of at most N tokens.")] = None
    context_bytes: Annotated[int | None, typer.Option(min=1, help="As --context, but in bytes.")] = None
    per_block: Annotated[
        int | None,
        typer.Option(min=1, help="dpo: at most N pairs of a block; kto: at most N candidates of each label."),
    ] = None
    per_text: Annotated[int | None, typer.Option(min=1, help="sft, dpo, kto: at most N rows with equal texts.")] = None
    min_margin: Annotated[
        float | None,
        typer.Option(min=0, help="dpo: minimum difference in value of two texts with the same outcome. Default: 1."),
    ] = None
    student: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Formats sft, dpo, kto, verifier, messages: write for the model in this folder, in its chat template; "
            "sft and messages also get its tokens, with labels.",
        ),
    ] = None
    shard_size: Annotated[str, typer.Option(help="Begin a new file after this many bytes, such as 500M.")] = "500M"

    def order(self, format: str) -> "write.Export":
        """The export that these options describe. Raises UsageError."""
        from weavegen import exports
        from weavegen.exports import write
        from weavegen.exports.format import Options

        chosen = exports.find(format)
        if self.student is not None:
            from weavegen.exports.student import Student, for_student

            chosen = for_student(chosen, Student(self.student))
        return write.Export(
            format=chosen,
            out=self.out or Path(),
            where=self.where,
            splits=write.read_splits(self.split),
            limit=self.limit,
            options=Options(**{field.name: getattr(self, field.name) for field in dataclasses.fields(Options)}),
            shard_bytes=parse_size(self.shard_size, "--shard-size", MAX_SHARD_BYTES),
            simulation=is_simulated(),
        )


@command()
def export(
    *,
    format: Annotated[
        str | None, typer.Option("--format", "-f", help="A format; --list shows all.", autocompletion=export_formats)
    ] = None,
    options: ExportOptions,
    seconds: Annotated[float, typer.Option(min=0.1, help="Time limit of the condition.")] = QUERY_SECONDS,
    list_: Annotated[bool, typer.Option("--list", help="List the formats; with --format, its columns.")] = False,
    dry_run: Annotated[bool, typer.Option(help="Only print how many rows and traces match.")] = False,
    push_to_hub: Annotated[
        str | None,
        typer.Option(metavar="OWNER/NAME", help="Also upload the folder to this Hugging Face dataset, with HF_TOKEN."),
    ] = None,
    public: Annotated[bool, typer.Option("--public", help="--push-to-hub creates a public dataset.")] = False,
) -> Result:
    """Write the corpus, or a part of it, as a folder that trainers read.

    The folder has Parquet files and a dataset card; `datasets.load_dataset(FOLDER)` opens it. It appears under its
    name only when it is complete. docs/exports.md describes each format.

    Example: weavegen export --format dpo --out pairs --where "margin > 1 and bootstrap = 'tictactoe.py'"
    """
    from weavegen.exports import write
    from weavegen.exports.folder import check_free
    from weavegen.exports.hub import Dataset

    if list_:
        return formats(format)
    if format is None or (options.out is None and not dry_run):
        raise UsageError("give --format and --out; `weavegen export --list` shows the formats")
    order = dataclasses.replace(options.order(format), seconds=seconds)
    if public and push_to_hub is None:
        raise UsageError("--public needs --push-to-hub OWNER/NAME")
    if dry_run:
        with reading() as conn:
            counts = write.preview(conn, order)
        lines = (f"{name}: {counts['rows'][name]} rows of {counts['traces'][name]} traces" for name in order.splits)
        return Result(counts | {"dry_run": True}, lines)
    check_free(order.out)
    return write_folder(order, None if push_to_hub is None else Dataset(push_to_hub, public=public))


def write_folder(order: "write.Export", hub: "Dataset | None" = None) -> Result:
    """Write the folder, and upload it to `hub` if that is given."""
    from weavegen.exports import write

    with reading() as conn, progress_bar(order.format.name) as progress:
        written = write.export(conn, order, progress=progress)
    if hub is not None:
        hub.push(order.out)

    def shown() -> Iterator[RenderableType]:
        for name, rows in written.rows.items():
            yield f"{name}: {rows} rows of {written.traces[name]} traces"
        for reason, rows in sorted(written.left_out.items()):
            yield f"left out, {rows} rows: {reason}"
        yield from written.remarks
        if written.simulated:
            yield SIMULATED_DATA
        sizes = f"{bytes_text(written.text_bytes)} of text in {bytes_text(written.bytes)}"
        yield f"{order.out}: {sizes}, see README.md there"
        if hub is not None:
            yield f"pushed to {hub.url}"

    value = dataclasses.asdict(written)
    value["origin"] = {name: sorted(one) if isinstance(one, set) else one for name, one in value["origin"].items()}
    return Result({"out": str(order.out), "format": order.format.name, "pushed_to": hub and hub.url} | value, shown())


def formats(name: str | None) -> Result:
    """All formats, or one with its columns."""
    from weavegen import exports
    from weavegen.exports.format import RowFormat, comments

    chosen = [exports.find(name)] if name is not None else list(exports.FORMATS.values())
    value = [
        {
            "format": format.name,
            "about": format.about,
            "view": format.view,
            "options": sorted(format.takes),
            "columns": comments(format.schema) if isinstance(format, RowFormat) else {},
        }
        for format in chosen
    ]

    def shown() -> Iterator[RenderableType]:
        yield display.table(chosen, {"format": "name", "--where is over": "view", "what it is": "about"})
        if name is not None and isinstance(format := chosen[0], RowFormat):
            yield "\ncolumns that are written:"
            columns = zip(comments(format.schema).items(), map(str, format.schema.types), strict=True)
            yield display.table([{"column": one, "type": type, "meaning": meaning} for (one, meaning), type in columns])
        view = "VIEW" if name is None else chosen[0].view
        yield (
            '\ncolumns that --where may use: weavegen sql "select attname, col_description(attrelid, attnum) from '
            f"pg_attribute where attrelid = '{view}'::regclass and attnum > 0\""
        )

    return Result(value, shown())
