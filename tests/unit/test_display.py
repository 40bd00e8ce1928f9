"""The wording of rows and figures, and which columns of a table narrow windows show."""

import dataclasses
import datetime
import ipaddress
import itertools
import json
from decimal import Decimal
from types import SimpleNamespace

import pytest
from rich.console import Console, RenderableType

from weavegen import text as texts
from weavegen.cli import corpus, display, top, watch
from weavegen.cli.pool import server_values
from weavegen.monitoring.progress import JobNow, Paced, Rates, seconds_left
from weavegen.pool.survey import ServerRow
from weavegen.services.faults import Fault
from weavegen.services.pool_members import Members
from weavegen.store.reports import JobRow, Troubles
from weavegen.store.servers import ServerHealth

JOB = JobRow(
    id=3, name="games", queued=10, running=20, ended=9, failed=1, cancelled=0, blocks=600, bytes=1_200_000,
    sampled_tokens=90_000, candidates_per_block=8.0, seconds=300.0, state="active", paused_at=None,
    pause_reason=None, revision=0,
    agent="weave", model="m", user="ada", called_by=None, progress=0.25, paused_seconds=0.0, retunes=[],
)  # fmt: skip
RATES = {"tokens_per_second": None, "blocks_per_second": None, "seconds_left": None}
TRACE = SimpleNamespace(
    id=17, number=1, bootstrap="tictactoe.py", status="ended", because="returned", ticks=4, blocks=35,
    bytes=32_000, sampled_tokens=1, candidates_per_block=8.0, result="won", fork_of=None, fork_at=None,
    retry_of=None, retried_as=[], isolated=True,
)  # fmt: skip


def drawn(part: RenderableType, width: int = 200) -> list[str]:
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(part)
    return [line.rstrip() for line in capture.get().splitlines()]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (119.4, "119 s"), (150, "2 min"), (7190, "2 h 0 min"), (9000, "2 h 30 min"), (200_000, "2 d 7 h")],
)
def test_durations(seconds: float, text: str) -> None:
    assert texts.duration(seconds) == text


def test_words_between_colons_are_no_pictures(capsys: pytest.CaptureFixture[str]) -> None:
    display.console().print("half = cells[:end:2]", markup=False)
    assert capsys.readouterr().out == "half = cells[:end:2]\n"


def test_arrays_and_objects_are_json(capsys: pytest.CaptureFixture[str]) -> None:
    row = ({"a": [1, None], "é": "x,y"}, [ipaddress.ip_address("10.0.0.1")], None, 2.5)
    corpus.print_csv(["object", "array", "nothing", "number"], [row])
    assert capsys.readouterr().out == (
        'object,array,nothing,number\r\n"{""a"":[1,null],""é"":""x,y""}","[""10.0.0.1""]",,2.5\r\n'
    )
    corpus.print_rows(["array"], [row[1:2]])
    assert json.loads(capsys.readouterr().out) == [{"array": ["10.0.0.1"]}]


def test_numerics_are_json_numbers_with_all_digits(capsys: pytest.CaptureFixture[str]) -> None:
    long = "0.12345678901234567890123"
    corpus.print_rows(["one", "none", "array"], [(Decimal(long), Decimal("NaN"), [Decimal("2.50"), None])])
    assert capsys.readouterr().out == f'[\n{{"one":{long},"none":null,"array":[2.50,null]}}\n]\n'


def test_narrow_windows_hide_columns_one_by_one() -> None:
    tables = {width: drawn(display.traces_table([TRACE], width), width) for width in (100, 50, 40, 24)}
    heads = {width: lines[0].split() for width, lines in tables.items()}
    assert heads[100] == ["trace", "bootstrap", "status", "because", "ticks", "blocks", "bytes", "result"]
    assert set(heads[24]) < set(heads[40]) < set(heads[50]) < set(heads[100])
    assert {"trace", "status", "ticks"} <= set(heads[24])
    for width, lines in tables.items():
        assert len(lines) == 2, "no line is wrapped"
        assert max(map(len, lines)) <= width


def test_an_unreachable_server_shows_the_reason_instead_of_its_model() -> None:
    rows = [ServerRow("http://a/v1", "up", model="m", running=3), ServerRow("http://b/v1", "away", why="refused")]
    values = server_values(rows, Members({}, {}), {"http://a/v1": 7}, [failing("http://b/v1")])
    _, a, b = drawn(display.pool_table(values))
    assert a.split()[:5] == ["http://a/v1", "up", "m", "7", "3"]
    assert b.split() == ["http://b/v1", "away", "refused", "0"]


def test_the_remaining_time_is_extrapolated_from_the_past() -> None:
    assert seconds_left(JOB) == 900
    assert seconds_left(dataclasses.replace(JOB, paused_seconds=100.0)) == 600
    for unknown in ({"progress": 0.0}, {"state": "paused"}, {"queued": 0, "running": 0}, {"seconds": 0.0}):
        assert seconds_left(dataclasses.replace(JOB, **unknown)) is None


def test_rates_cover_only_the_last_moments() -> None:
    rates = Rates(window=10)
    assert rates.now(0, JOB) == (None, None)
    later = dataclasses.replace(JOB, blocks=610, sampled_tokens=91_000)
    assert rates.now(5, later) == (2, 200)
    # Events before the window do not count.
    assert rates.now(15, later) == (0, 0)
    assert rates.now(25, dataclasses.replace(later, blocks=620)) == (1, 0)


def test_slow_queries_run_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    asked: list[float] = []

    def ask() -> int:
        asked.append(clock[0])
        clock[0] += 2.0
        return len(asked)

    monkeypatch.setattr("weavegen.monitoring.progress.time.monotonic", lambda: clock[0])
    paced = Paced(ask, every=1.0, share=0.05)
    for _ in range(1000):
        paced.get()
        clock[0] += 0.1
    assert [round(after - before) for before, after in itertools.pairwise(asked)] == [40, 40]
    assert paced.get() == 3


@pytest.mark.parametrize("width", [40, 60, 100])
def test_figures_of_a_watched_job(width: int) -> None:
    now = watch.WatchedJob(JobNow(JOB, blocks=0.5, tokens=1234.0), Troubles(0.14, 1, None), [])
    console = Console(width=width, color_system=None)
    text = " ".join(" ".join(drawn(watch.figures(now, console), width)).split())
    for part in (
        "25%",
        "games: 10 of 40 over, 20 running, 10 queued",
        "1,234 tokens/s, 30.0 blocks/min, 14% of the tokens kept",
        "1 failed trace, 1 block raised, — steps tried again",
        "about 15 min, until ",
        "600 blocks, 1.2 MB, 90,000 tokens sampled in 5 min; 8.0 candidates per block",
    ):
        assert part in text, text
    text = " ".join(" ".join(drawn(watch.figures(dataclasses.replace(now, faults=[FAULT]), console), width)).split())
    assert "left —" in text
    assert "fault: no worker serves the queue sample: start workers" in text
    over = JobNow(dataclasses.replace(JOB, queued=0, running=0, ended=39, progress=1.0), None, None)
    assert watch.left_line(dataclasses.replace(now, job=over)).plain == "nothing"


def test_what_is_not_quite_done_is_not_100_percent() -> None:
    job = dataclasses.replace(JOB, progress=0.999)
    now = watch.WatchedJob(JobNow(job, None, None), Troubles(0.999, 0, None), [])
    assert drawn(watch.figures(now, Console(width=60, color_system=None)), 60)[0].endswith(" 99%")
    assert "99% of the tokens kept" in watch.speed_line(now).plain
    assert "99%" in "\n".join(drawn(top.jobs_table([dataclasses.asdict(job) | RATES])))
    assert [watch.whole_percent(share) for share in (0.29, 1.0, None)] == ["29%", "100%", watch.UNKNOWN]


FAULT = Fault(kind="queue", what="no worker serves the queue sample", advice="start workers")


def failing(url: str) -> ServerHealth:
    now = datetime.datetime.now(datetime.UTC)
    return ServerHealth(
        url=url, errors=20, errors_since_ok=12, last_error="answered 500: CUDA out of memory", kind="status",
        last_error_at=now, last_ok_at=None, age=3.0, failing=True, by_kind={"status": 20},
    )  # fmt: skip


def test_top_fits_its_window() -> None:
    now = top.Fleet(
        jobs=[JobNow(dataclasses.replace(JOB, id=number), 0.5, 1234.0) for number in range(40)],
        queues=[{"queue": "sample", "kind": "sample", "waiting": 12, "leased": 64, "retrying": 1, "oldest": 3.0}],
        environments={"here": 20},
        members=Members({}, {}),
        homes={},
        faults=[FAULT],
        health=[failing(f"http://gpu{number}:8000/v1") for number in range(2)],
        surveyed=[ServerRow(f"http://gpu{number}:8000/v1", "up", model="m") for number in range(30)],
        workers={"sample": 2, "lint": 0},
    )
    for size in ((120, 40), (80, 24), (40, 15)):
        lines = [line for part in top.parts(now, size) for line in drawn(part, size[0]) or [""]]
        assert len(lines) <= size[1], size
        assert max(map(len, lines)) <= size[0], size
    whole = [line for part in top.parts(now, None) for line in drawn(part)]
    assert sum("gpu" in line for line in whole) == 32
    assert sum("failing" in line for line in whole) == 2
    said = "fails: answered 500: CUDA out of memory, 12 errors in a row, the last 3 s ago: see the server's log"
    assert f"http://gpu1:8000/v1 {said}" in whole[3]
    assert not any("more" in line for line in whole)
    [sample] = [line.split() for line in whole if line.startswith("sample")]
    assert sample == ["sample", "2", "sample", "12", "64", "1", "3", "s"]
    assert whole[0].endswith("40 open jobs, 800 running traces, environments: 20 on here")
