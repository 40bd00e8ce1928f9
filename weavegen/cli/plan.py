"""`weavegen plan`: hours, GPU-hours, cores, memory and disk for an amount of kept traces, from measured rates."""

import difflib
import math
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from msgspec.structs import replace

from weavegen import sql
from weavegen.cli import display
from weavegen.cli.app import Result, command, reading
from weavegen.cli.complete import job_numbers
from weavegen.cli.jobs import pairs
from weavegen.database import Connection
from weavegen.errors import UsageError
from weavegen.store import reports
from weavegen.text import bytes_text, parse_size

GPUS_PER_SERVER = 4
"""GPUs of the server whose tokens_per_second is in rates.toml."""


class Rate(msgspec.Struct, frozen=True):
    """A number that the plan is based on."""

    value: float
    meaning: str
    source: str
    """Where the value was measured, or who gave it."""
    known: tuple[float, float] | None = None
    """Smallest and largest value in the documents; None: the value is the user's, or the hours do not depend on it."""


DEFAULTS = msgspec.convert(tomllib.loads((Path(__file__).parent / "rates.toml").read_text()), dict[str, Rate])


@command()
def plan(
    size: Annotated[str, typer.Argument(help="Bytes of kept traces, such as 500M or 1G.")] = "1G",
    gpus: Annotated[int, typer.Option(min=1, max=10**6, help="GPUs of all model servers.")] = 8,
    gpus_per_server: Annotated[int, typer.Option(min=1, help="GPUs of one model server.")] = GPUS_PER_SERVER,
    job: Annotated[int | None, typer.Option(help="A job to take rates from.", autocompletion=job_numbers)] = None,
    rate: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="A rate of your own.")] = None,
) -> Result:
    """Print what an amount of kept traces takes (hours, cores, memory, disk), and the rates that this is based on.

    docs/plan.md explains both. Rates of a job that your own model wrote are better than any default.

    Example: weavegen plan 1G --gpus 8 --rate tokens_per_second=1500 --rate sampled_per_kept=5
    """
    kept, rates, lines = parse_size(size, "SIZE", 1e15), given(rate), []
    if gpus % gpus_per_server:
        raise UsageError(f"--gpus {gpus}: give a multiple of --gpus-per-server, {gpus_per_server}")
    if gpus_per_server != GPUS_PER_SERVER and "tokens_per_second" not in rates:
        raise UsageError(f"give --rate tokens_per_second=N: its default is for a server of {GPUS_PER_SERVER} GPUs")
    if job is not None:
        with reading() as conn:
            measured, line = rates_of_job(conn, job)
        rates, lines = measured | rates, [line]
    rates = DEFAULTS | rates
    servers = gpus // gpus_per_server
    figures = estimate(kept, gpus, servers, rates)
    hours = {
        key: sorted(estimate(kept, gpus, servers, rates | {key: replace(one, value=end)})["hours"] for end in one.known)
        for key, one in rates.items()
        if one.known
    }
    if hours:
        most, (low, high) = max(hours.items(), key=lambda item: item[1][1] / item[1][0])
        lines.append(f"The hours depend most on {most}: {low:,.0f} to {high:,.0f} over its known values. Measure it.")
    what = f"{bytes_text(kept)} of kept traces from {gpus} GPUs, {gpus_per_server} for each model server"
    shown = [{what: label(name), "": figure_text(name, figure)} for name, figure in figures.items()]
    rows = [
        {"rate": name, "value": figure_text(name, one.value)}
        | {"hours": " to ".join(f"{end:,.0f}" for end in hours.get(name, ()))}
        | {"meaning": one.meaning, "source": one.source}
        for name, one in rates.items()
    ]
    value = {"kept_bytes": kept, "gpus": gpus, **figures, "rates": rates, "hours_by_rate": hours}
    return Result(value, [display.table(shown), "", display.table(rows), "", *lines])


def estimate(kept: int, gpus: int, servers: int, rates: Mapping[str, Rate]) -> dict[str, float]:
    """What `kept` bytes of traces take. Memory and disk are bytes; docs/plan.md explains each figure."""
    r = {name: rate.value for name, rate in rates.items()}
    sampled = kept / r["bytes_per_kept_token"] * r["sampled_per_kept"]
    seconds = sampled / (servers * r["tokens_per_second"])
    blocks = kept / r["bytes_per_block"]
    traces, active = math.ceil(blocks / r["blocks_per_trace"]), round(servers * r["slots"])
    cores = math.ceil(2 * blocks / seconds * r["steps_per_block"] * r["cpu_per_step"])
    # MiB (docs/deploy.md): model workers with 4 GiB of cached traces, execute workers, lint processes, pages and Redis
    workers = 4_226 * math.ceil(active / 256) + 250 * math.ceil(blocks / seconds / 100) + 110 * cores + 982
    prompt_tokens = r["tokens_per_second"] * r["prompt_tokens_per_sampled"]  # per second and server
    return {
        "hours": seconds / 3600,
        "gpu_hours": gpus * seconds / 3600,
        "hours_of_one_trace": sampled / traces / r["tokens_per_second"] * r["slots"] / 3600,
        "cores": cores,
        "memory_of_workers": (workers + 20 * active) * 2**20,
        "memory_of_busy_boxes": 1024 * active * 2**20,
        "disk_of_database": blocks * r["database_per_block"],
        "disk_of_exports": kept * r["exports_per_byte"],
        "traces": traces,
        "active_traces": active,
        "blocks": blocks,
        "blocks_per_second": blocks / seconds,
        "requests_per_second": blocks / seconds * r["requests_per_block"],
        "sampled_tokens": sampled,
        "prompt_tokens_per_second": prompt_tokens,
        "computed_prompt_tokens_per_second": prompt_tokens * (1 - r["cached_share"]),
    }


def label(name: str) -> str:
    return name.replace("gpu_", "GPU-").replace("_", " ")


def figure_text(name: str, value: float) -> str:
    """A figure or a rate for people, with at least three digits."""
    if name.startswith(("memory", "disk")):
        return bytes_text(value)
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def given(options: list[str] | None) -> dict[str, Rate]:
    """The rates that the user gave. Raises UsageError."""
    rates = {}
    for name, value in pairs(options).items():
        if name not in DEFAULTS:
            near = difflib.get_close_matches(name, DEFAULTS, 1)
            raise UsageError(f"--rate {name}: give {near[0] if near else 'one of ' + ', '.join(DEFAULTS)}")
        most = 1.0 if name == "cached_share" else 1e12
        if isinstance(value, bool) or not isinstance(value, int | float) or not 1e-9 < value <= most:
            raise UsageError(f"--rate {name}: give a number above 0, at most {most:g}")
        rates[name] = Rate(value, DEFAULTS[name].meaning, "given")
    return rates


def rates_of_job(conn: Connection, number: int) -> tuple[dict[str, Rate], str]:
    """The rates that a job has, and a line about its speed. Raises UsageError where it has none."""
    [job] = reports.jobs(conn, number)
    begun = max(1, job.traces - job.queued)
    row = sql.run(conn, "cli/rates_of_job", job=number, begun=begun, most=reports.MAX_SAMPLED_TRACES).one()
    found = {name: value for name, value in row._asdict().items() if name in DEFAULTS and value is not None}
    if "sampled_per_kept" not in found:
        raise UsageError(f"job {number} has no block of a model yet: wait for some, or give another job")
    source = f"job {number}: {row.traces} traces"
    rates = {name: Rate(value, DEFAULTS[name].meaning, source) for name, value in found.items()}
    speed = job.sampled_tokens / max(job.seconds - job.paused_seconds, 1.0)
    return rates, f"Job {number} sampled {speed:,.0f} tokens a second on {row.servers} model servers."
