"""`weavegen plan`: its defaults against their sources, its arithmetic, its document, bad input. No services."""

import json
import os
import re
from pathlib import Path

import pytest

from tests.support import ROOT, command
from weavegen.cli import plan
from weavegen.cli.plan import DEFAULTS, Rate
from weavegen.kernel.context import PINNED

RESULTS = ROOT / "bench" / "results"
DOCUMENT = ROOT / "docs" / "plan.md"


def printed(tmp_path: Path, *arguments: str) -> str:
    done = command.run(["plan", *arguments], {"PATH": os.environ["PATH"], "WEAVEGEN_HOME": str(tmp_path)}, tmp_path, 60)
    assert (done.returncode, done.stderr) == (0, "")
    assert list(tmp_path.iterdir()) == [], "without a job no database is needed"
    return done.stdout


def rows(result: str, title: str) -> dict[str, list[str]]:
    """The table below `title` in a benchmark's result: the cells of each row by its first cell."""
    text = (RESULTS / result).read_text()
    lines = text[text.index(title) :].split("\n\n")[0].splitlines()[2:]
    cells = [re.split(r" {2,}", line.strip()) for line in lines]
    return {name: values for name, *values in cells}


def number(cell: str) -> float:
    return float(cell.rstrip(" %").replace(",", ""))


def test_the_document_shows_what_the_command_prints(tmp_path: Path) -> None:
    [shown] = re.findall(r"```text\n\$ weavegen plan\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    lines = [line.rstrip() for line in printed(tmp_path).splitlines()]
    assert shown.splitlines() == lines


def test_the_sizes_of_deployments_are_what_the_command_computes() -> None:
    text = (ROOT / "docs" / "deploy.md").read_text()
    [table] = re.findall(r"(?m)^\| kept traces, GPUs .*\n(?:\|.*\n)+", text)
    (_, *columns), _, *lines = ([cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines())
    labels = {plan.label(name): name for name in plan.estimate(1, 4, 1, DEFAULTS)}
    assert (len(columns), len(lines)) == (3, 7)
    for column, cells in zip(columns, zip(*(line[1:] for line in lines), strict=True), strict=True):
        gigabytes, gpus = (int(size) for size in re.findall(r"\d+", column))
        figures = plan.estimate(gigabytes * 10**9, gpus, gpus // plan.GPUS_PER_SERVER, DEFAULTS)
        names = [labels[line[0].partition(",")[0]] for line in lines]
        assert list(cells) == [plan.figure_text(name, figures[name]) for name in names], column


def test_the_document_explains_every_figure() -> None:
    text = DOCUMENT.read_text()
    figures = plan.estimate(10**9, 8, 2, DEFAULTS)
    assert [name for name in figures if f"| {plan.label(name)} |" not in text] == []
    assert [name for name in DEFAULTS if f"`{name}`" not in text] == []


def test_defaults_are_those_of_their_sources() -> None:
    """A benchmark that was run again may differ by its noise; if it differs by more, rates.toml is wrong."""
    sources: dict[str, tuple[float, float]] = {}
    """By rate: what the sources say, and by what share the default may differ from it."""
    _, sampled, share, read, trace_bytes, _, ticks, _ = rows("agents.txt", "A trace of each")["tictactoe weave"]
    kept = number(sampled) * number(share) / 100
    longer = 40 / number(ticks)
    pinned = sum((ROOT / name).stat().st_size for name in ("weavegen/box/api.py", "bootstraps/tictactoe.py"))
    written = number(trace_bytes) - pinned
    alone = rows("engine.txt", "Orchestration per block, ms, one trace alone")
    blocks = int(alone["all"][0])
    long_blocks = PINNED + (blocks - PINNED) * longer
    sources["sampled_per_kept"] = number(sampled) / kept, 0.05
    sources["bytes_per_kept_token"] = (pinned + written * longer) / (kept * longer), 0.05
    sources["bytes_per_block"] = (pinned + written * longer) / long_blocks, 0.05
    sources["blocks_per_trace"] = long_blocks, 0.05
    sources["prompt_tokens_per_sampled"] = number(read) / number(sampled), 0.05
    known = DEFAULTS["bytes_per_kept_token"].known
    assert known == pytest.approx((written / kept, number(trace_bytes) / kept), rel=0.05)

    steps = {kind: int(values[0]) for kind, values in rows("engine.txt", "Where a step's time goes, ms, 32").items()}
    cpu = rows("engine.txt", "CPU, 32 traces at once")
    seconds, per_block = (number(cpu["all of these"][place]) for place in (0, 1))
    job_blocks = 1000 * seconds / per_block
    sources["steps_per_block"] = sum(steps.values()) / job_blocks, 0.1
    sources["requests_per_block"] = (steps["sample"] + steps["score"]) / job_blocks, 0.1
    sources["cpu_per_step"] = (seconds - number(cpu["sim"][0])) / sum(steps.values()), 0.25

    pool = rows("pool.txt", "1 x 64 slots like h100-70b-tp4, 64 traces")["1"]
    sources["tokens_per_second"] = number(pool[2]), 0.05
    sources["slots"] = 64, 0
    sources["cached_share"] = number(rows("prefix.txt", "Prompt tokens per block")["ours"][2]) / 100, 0.01
    exports = rows("exports.txt", "Exports of 100,000 blocks")
    sources["exports_per_byte"] = sum(number(row[2]) for row in exports.values()) / number(exports["text"][1]), 0.1
    [ratio] = re.findall(r"(\d+) MB for a kept megabyte of traces", (ROOT / "docs" / "deploy.md").read_text())
    sources["database_per_block"] = int(ratio) * number(trace_bytes) / blocks, 0.05

    search = rows("search.txt", "24 traces of each")
    judged, tried = (100 / number(search[f"tictactoe, {way}"][3]) for way in ("judge", "execute"))
    assert DEFAULTS["sampled_per_kept"].known == pytest.approx((tried, judged), rel=0.05)
    assert "| 70B on four GPUs, the same | 3,543 |" in (ROOT / "docs" / "simulation.md").read_text()
    assert sources.keys() == DEFAULTS.keys()
    for name, (value, tolerance) in sources.items():
        assert DEFAULTS[name].value == pytest.approx(value, rel=tolerance), name


def test_the_arithmetic() -> None:
    values = {
        "tokens_per_second": 100, "sampled_per_kept": 5, "bytes_per_kept_token": 20, "bytes_per_block": 500,
        "blocks_per_trace": 50, "steps_per_block": 3, "requests_per_block": 2, "prompt_tokens_per_sampled": 10,
        "cached_share": 0.9, "database_per_block": 1_000, "cpu_per_step": 0.1, "exports_per_byte": 2, "slots": 4,
    }  # fmt: skip
    assert values.keys() == DEFAULTS.keys()
    figures = plan.estimate(1_440_000, 8, 2, {name: Rate(value, "", "") for name, value in values.items()})
    # 72,000 kept tokens are 360,000 sampled ones: 1,800 s at 200 tokens a second, for 2,880 blocks in 58 traces.
    assert figures == pytest.approx(
        {
            "hours": 0.5, "gpu_hours": 4, "hours_of_one_trace": 360_000 / 58 / 25 / 3600, "cores": 1,
            "memory_of_workers": (4_226 + 250 + 110 + 982 + 8 * 20) * 2**20, "memory_of_busy_boxes": 8 * 2**30,
            "disk_of_database": 2_880_000, "disk_of_exports": 2_880_000, "traces": 58, "active_traces": 8,
            "blocks": 2_880, "blocks_per_second": 1.6, "requests_per_second": 3.2, "sampled_tokens": 360_000,
            "prompt_tokens_per_second": 1_000, "computed_prompt_tokens_per_second": 100,
        }
    )  # fmt: skip


def test_rates_of_the_user_replace_defaults(tmp_path: Path) -> None:
    usual = json.loads(printed(tmp_path, "--json"))
    most = max(usual["hours_by_rate"], key=lambda name: ratio(usual["hours_by_rate"][name]))
    assert f"The hours depend most on {most}: " in printed(tmp_path)
    low, high = usual["hours_by_rate"]["tokens_per_second"]
    assert low < usual["hours"] == pytest.approx(high)
    own = ("--rate", "tokens_per_second=2420", "--rate", "cached_share=1")
    faster = json.loads(printed(tmp_path, "500M", "--gpus", "16", *own, "--json"))
    assert faster["hours"] == pytest.approx(usual["hours"] / 8)
    assert faster["gpu_hours"] == pytest.approx(usual["gpu_hours"] / 4)
    assert faster["rates"]["tokens_per_second"] == {
        "value": 2420, "meaning": DEFAULTS["tokens_per_second"].meaning, "source": "given", "known": None
    }  # fmt: skip
    assert "tokens_per_second" not in faster["hours_by_rate"]
    every = [part for name in usual["hours_by_rate"] for part in ("--rate", f"{name}=7")]
    assert json.loads(printed(tmp_path, *every, "--json"))["hours_by_rate"] == {}
    assert "depend" not in printed(tmp_path, *every)
    single = json.loads(printed(tmp_path, "--gpus-per-server", "1", "--rate", "tokens_per_second=605", "--json"))
    assert single["hours"] == pytest.approx(usual["hours"] / 2)


def ratio(ends: list[float]) -> float:
    return ends[1] / ends[0]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("lots",), "SIZE lots: give a size"),
        (("0",), "SIZE 0: give a size"),
        (("--gpus", "6"), "give a multiple of --gpus-per-server, 4"),
        (("--gpus", "0"), "--gpus"),
        (("--gpus", "8", "--gpus-per-server", "8"), "give --rate tokens_per_second=N"),
        (("--rate", "slots"), "give KEY=VALUE"),
        (("--rate", "slot=3"), "give slots"),
        (("--rate", "zzz=3"), "give one of tokens_per_second"),
        (("--rate", "slots=many"), "give a number above 0"),
        (("--rate", "slots=true"), "give a number above 0"),
        (("--rate", "slots=0"), "give a number above 0"),
        (("--rate", "slots=-1"), "give a number above 0"),
        (("--rate", "slots=1e300"), "at most 1e+12"),
        (("--rate", "cached_share=1.5"), "at most 1"),
    ],
)
def test_bad_input(tmp_path: Path, arguments: tuple[str, ...], complaint: str) -> None:
    done = command.run(["plan", *arguments], {"PATH": os.environ["PATH"], "WEAVEGEN_HOME": str(tmp_path)}, tmp_path, 60)
    assert (done.returncode, done.stdout) == (2, "")
    assert complaint in done.stderr
    assert len(done.stderr.splitlines()) == 1
