"""The report: consistent with the database, safe to open, and a single self-contained page."""

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from playwright.sync_api import sync_playwright
from typer.testing import CliRunner

from tests.support.sample_corpus import filled
from tests.support.worker import Worker, enqueue, scalar
from weavegen.cli.app import app
from weavegen.config import Config
from weavegen.database import Database, Statement
from weavegen.errors import UsageError
from weavegen.viewer import report_page
from weavegen.viewer.report import Report, cost, effective, read, refresh

HOSTILE = (
    "</pre></style></svg><script>alert(1)</script><img src=http://example.org/x onerror=alert(2)>\x1b[31m\u202e{{7*7}}"
)
JOB = 1
CHROMIUM = "/usr/bin/chromium"


@pytest.fixture(scope="module")
def corpus(config: Config, template: str) -> Iterator[Database]:
    """The sample corpus for all tests of this file, which do not change it."""
    with filled(config, template) as db:
        yield db


@pytest.fixture(scope="module")
def report(corpus: Database) -> Report:
    with corpus.connect() as conn:
        return read(conn, JOB, 2, simulation=False)


class Tags(HTMLParser):
    """The tags and texts of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


def one(db: Database, query: str) -> Any:
    return scalar(db, query, job=JOB)


def test_its_sums_equal_those_of_the_tables(corpus: Database, report: Report) -> None:
    traces = "from traces where job_id = :job"
    assert report["sums"]["traces"] == one(corpus, f"select count(*) {traces}")
    assert report["sums"]["bytes"] == one(corpus, f"select sum(bytes - shared_bytes) {traces}")
    blocks = one(corpus, "select count(*) from blocks b join traces t on t.id = b.trace_id where t.job_id = :job")
    assert report["sums"]["blocks"] == sum(row["blocks"] for row in report["blocks"]) == blocks
    assert sum(row["blocks"] for row in report["throughput"]) == blocks
    tokens = "select sum(c.tokens) from candidates c join traces t on t.id = c.trace_id where t.job_id = :job"
    assert sum(row["tokens"] for row in report["throughput"]) == one(corpus, tokens)
    chosen = sum(row["chosen"] for row in report["scores"])
    scored = "select count(*) from candidate_values where job_id = :job and score is not null"
    assert chosen + sum(row["lost"] for row in report["scores"]) == one(corpus, scored)
    lost = "select count(*) from candidate_values where job_id = :job and block_id is null"
    assert sum(row["candidates"] for row in report["rejections"]) == one(corpus, lost)
    rewarded = "select count(*) from tick_stats where job_id = :job and tick > 0 and tick_reward is not null"
    assert sum(row["ticks"] for row in report["rewards"]) == one(corpus, rewarded)
    assert all(0 <= row["reward"] <= 0.5 for row in report["rewards"])


def test_the_cost_follows_its_formulas(corpus: Database, report: Report) -> None:
    kept = float(one(corpus, "select sum(bytes) from traces where job_id = :job and status = 'ended'")) / 1e6
    sampled = int(one(corpus, "select sum(sampled_tokens) from traces where job_id = :job"))
    computed = int(
        one(
            corpus,
            "select sum(tokens - cached) from prompts p join traces t on t.id = p.trace_id"
            " join steps s on s.id = p.step_id where t.job_id = :job and s.kind = 'sample'",
        )
    )
    assert report["cost"]["kept_megabytes"] == pytest.approx(kept)
    assert report["cost"]["sampled_tokens"] == pytest.approx(sampled / kept)
    assert report["cost"]["computed_tokens"] == pytest.approx((sampled + computed) / kept)
    assert report["cost"]["gpu_seconds"] == pytest.approx(2 * report["cost"]["server_seconds"])


def test_without_kept_tokens_the_cost_is_unknown() -> None:
    sums = {"kept_megabytes": 0.0, "sampled_tokens": 5, "seconds": None, "servers": 0, "model_seconds": None}
    prompts = {"computed": None, "told_share": None, "cached_share": None}
    found = cost(sums, prompts, 1)
    assert {name: value for name, value in found.items() if value is not None} == {"gpus_per_server": 1}


def test_best_and_worst_are_the_extremes(corpus: Database, report: Report) -> None:
    scores = (
        "select %s(b.score) from blocks b join traces t on t.id = b.trace_id"
        " where t.job_id = :job and b.type = 'action'"
    )
    assert report["best"][0]["score"] == one(corpus, scores % "max")
    assert report["worst"][0]["score"] == one(corpus, scores % "min")


def test_whether_one_would_train_on_it(corpus: Database, report: Report) -> None:
    measured = {row["measure"]: row for row in report["training"]}
    pairs = "from preference_pairs where job_id = :job and kind = 'candidates'"
    differ, margin, repeated, ran, error, protected = (
        next(row for name, row in measured.items() if name.startswith(begin))
        for begin in (
            "preference pairs",
            "margin",
            "examples (sft): share that repeats",
            "examples (sft): share that was",
            "evaluator",
            "rewards",
        )
    )
    assert differ["n"] == one(corpus, f"select count(*) {pairs}") > 0
    assert differ["value"] == pytest.approx(float(one(corpus, f"select avg(outcome_differs::int) {pairs}")))
    assert margin["n"] == one(corpus, f"select count(*) {pairs} and not outcome_differs")
    assert margin["fine"] is (margin["value"] >= 1)
    examples = "from sft_examples where job_id = :job"
    different = one(corpus, f"select count(*) from (select distinct body {examples}) bodies")
    assert repeated["value"] == pytest.approx(1 - different / one(corpus, f"select count(*) {examples}"))
    assert ran["n"] == repeated["n"] == one(corpus, f"select count(*) {examples}")
    assert ran["value"] == pytest.approx(one(corpus, f"select count(*) {examples} and ran") / ran["n"])
    assert (error["fine"], protected["value"], protected["fine"]) == (error["value"] <= 0.1, 0.0, False)
    labels = "from verifier_labels where job_id = :job and source in ('ran', 'tried')"
    rarer = measured["labels (verifier): share of the rarer answer, Does this block run without errors?"]
    right, of = one(corpus, f"select count(*) {labels} and label"), one(corpus, f"select count(*) {labels}")
    assert (rarer["n"], rarer["value"]) == (of, pytest.approx(min(right, of - right) / of))
    text = report_page.html(report)
    assert text.index('id="training"') > text.index('id="versions"')
    assert "look first" in text


def test_the_page_has_all_sections_and_plots(report: Report) -> None:
    text = report_page.html(report)
    tags = Tags(text)
    for name in ("made", "good", "evaluator", "time", "cost", "lost", "examples", "settings", "versions", "training"):
        assert ("id", name) in tags.attributes
    plots = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert len(plots) == 9
    for plot in plots:
        assert ElementTree.fromstring(plot).tag == "{http://www.w3.org/2000/svg}svg"
    for row in report["bootstraps"]:
        assert row["sha256"] in text
    assert report["code_sha256"] in text
    assert "SIMULATED" not in text


def test_recorded_texts_are_escaped(report: Report) -> None:
    """Every text of a copy of the report gets markup."""

    def spoilt(value: Any, key: str = "") -> Any:
        if isinstance(value, str):
            return HOSTILE if key not in ("penalty", "reason") else value
        if isinstance(value, list):
            return [spoilt(part) for part in value]
        return {name: spoilt(part, name) for name, part in value.items()} if isinstance(value, dict) else value

    values = {name: spoilt(part) for name, part in report.items()}
    values["penalties"] = [row | {"penalty": HOSTILE} for row in values["penalties"]]
    talk = dict.fromkeys(("trace_status", "task", "final_response", "error"), HOSTILE)
    values["conversations"] = [talk | {"trace_id": 1, "success": False, "messages": 3, "replies": 1, "reply_tokens": 9}]
    values["programs"] = [
        {"trace_id": 1, "number": 2, "generation": 1, "score": None, "error": HOSTILE, "source": HOSTILE}
    ]
    values["revisions"] = [
        {
            "revision": 0,
            "created_at": report["made_at"],
            "settings": {HOSTILE: HOSTILE, "types": {HOSTILE: {HOSTILE: 1}}},
        }
    ]
    text = report_page.html(values)
    tags = Tags(text)
    assert not tags.names & {"script", "img", "iframe", "object", "embed", "link", "form", "base", "image", "use"}
    assert not [name for name, _ in tags.attributes if name.startswith("on") or name in ("src", "style", "xlink:href")]
    assert all(value is not None and value.startswith("#") for name, value in tags.attributes if name == "href")
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text)
    assert tags.text.count("<script>alert(1)</script>") > 20
    assert "{{7*7}}" in tags.text
    assert any(name == "content" and "default-src 'none'" in (value or "") for name, value in tags.attributes)


def test_a_job_of_the_simulation_says_so(db: Database) -> None:
    job = enqueue(db, 3, seed=3, ticks=3)
    with db.begin() as conn:
        conn.execute(Statement("update jobs set model = 'weavegen-sim'"))
    worker = Worker(db, seed=3)
    worker.run(worker.engine.start_queued())
    with db.connect() as conn:
        assert {"tick_stats", "step_times"} <= set(refresh(conn, job))
        assert list(refresh(conn, job)) == []
        found = read(conn, job, simulation=False)
    assert found["simulated"]
    assert found["sums"]["blocks"] == sum(row["blocks"] for row in found["blocks"]) > 20
    text = report_page.html(found)
    assert re.search(r"<title>SIMULATED MODEL DATA: job \d+, test</title>", text)
    assert re.search(r"<h1>.*SIMULATED MODEL DATA</h1>", text)
    assert "The simulation uses no GPU" in text


def test_a_job_without_started_traces_has_a_report(db: Database) -> None:
    job = enqueue(db, 2)
    with db.connect() as conn:
        list(refresh(conn, job))
        text = report_page.html(read(conn, job, simulation=True))
    assert "2 of 2 traces are still to be written" in text
    assert text.count("nothing to measure") == 6
    assert "SIMULATED MODEL DATA" in text
    assert "<svg" not in text


def test_conversations_are_shown_by_success(db: Database) -> None:
    job = enqueue(db, 3)
    with db.begin() as conn:
        conn.execute(Statement("update jobs set agent = 'react'"))
        for number, success in enumerate((False, True, None), 1):
            returned = {"success": success, "final_response": f"answer {number}", "error": None}
            conn.execute(
                Statement(
                    "update traces set status = 'ended', returned = cast(:returned as jsonb), started_at = now(),"
                    " finished_at = now() where number = :number"
                ),
                {"returned": returned, "number": number},
            )
        for index, (type, body) in enumerate((("user", "a <b>task</b>"), ("assistant", "said"))):
            conn.execute(
                Statement(
                    "insert into blocks (trace_id, index, tick, subagent, type, body, rendered, timestamp,"
                    " time_remaining, compiles, tags)"
                    " select id, :index, 0, 'main', :type, :body, :body, 0, 0, true, '{}' from traces"
                ),
                {"index": index, "type": type, "body": body},
            )
    with db.connect() as conn:
        list(refresh(conn, job))
        found = read(conn, job, simulation=False)
    assert [row["success"] for row in found["conversations"]] == [True, False, None]
    text = report_page.html(found)
    assert "a &lt;b&gt;task&lt;/b&gt;" in text
    assert text.index("answer 2") < text.index("answer 1")


def test_all_revisions_of_the_settings_are_listed(db: Database) -> None:
    job = enqueue(db, 1, ticks=3)
    with db.begin() as conn:
        conn.execute(
            Statement(
                "insert into job_settings (job_id, revision, settings) values"
                """ (:job, 1, '{"ticks": 5, "types": {"action": {"temperature": 0.5}}}')"""
            ),
            {"job": job},
        )
    with db.connect() as conn:
        found = read(conn, job, simulation=False)
    assert [row["revision"] for row in found["revisions"]] == [0, 1]
    assert found["effective"] is not None
    assert found["effective"]["ticks"] == 5
    assert report_page.flat(found["revisions"][1]["settings"]) == [("action.temperature", "0.5"), ("ticks", "5")]
    assert effective({"no_such_setting": 1}) is None


def test_the_command(corpus: Database, home: Path, tmp_path: Path) -> None:
    url = corpus.url
    runner = CliRunner(env={"DATABASE_URL": url, "WEAVEGEN_HOME": str(home)})
    file = tmp_path / "report.html"
    said = runner.invoke(app, ["report", str(JOB), "--out", str(file), "--as-is"], catch_exceptions=False)
    assert f"report of job {JOB} written to" in said.stdout
    assert file.read_text().startswith("<!doctype html>")
    printed = runner.invoke(app, ["report", str(JOB), "--as-is", "--json"], catch_exceptions=False)
    assert json.loads(printed.stdout)["sums"]["job_id"] == JOB
    for arguments, message in (
        (["999"], "there is no job 999"),
        ([str(JOB), "--as-is", "--out", str(tmp_path / "no" / "report.html")], "can't be written"),
    ):
        failed = runner.invoke(app, ["report", *arguments])
        assert isinstance(failed.exception, UsageError)
        assert message in str(failed.exception)


@pytest.mark.skipif(not Path(CHROMIUM).exists(), reason="there is no Chromium")
def test_a_browser_shows_it_without_any_request(report: Report, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(report_page.html(report))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        backs = set()
        for scheme, width in (("light", 1200), ("dark", 1200), ("light", 360)):
            told: list[str] = []
            tab = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
            tab.on("console", lambda message, told=told: told.append(message.text))
            tab.on("request", lambda request, told=told: told.append(request.url))
            tab.goto(file.as_uri())
            assert told == [file.as_uri()]
            assert tab.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
            backs.add(tab.evaluate("getComputedStyle(document.body).backgroundColor"))
            # The page's policy allows its own style.
            assert tab.evaluate("getComputedStyle(document.querySelector('.plot .bar')).fillOpacity") == "0.65"
            tab.close()
        assert len(backs) == 2
        browser.close()
