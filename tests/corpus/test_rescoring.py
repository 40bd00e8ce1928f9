"""Campaigns with real workers and the simulated model, and calibration with their answers."""

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support import ROOT, TICTACTOE
from tests.support.installation import Installation
from tests.support.waiting import until
from weavegen.database import Connection, Statement
from weavegen.evaluator.calibration import Fit
from weavegen.evaluator.rubrics import parse
from weavegen.kernel import prompts
from weavegen.store import campaigns, urls
from weavegen.store.session import pooled
from weavegen.trace.blocks import BlockType
from weavegen.trace.render import RAN_QUESTION

ACTION, DEBUG = (prompts.questions(type)[0] for type in (BlockType.ACTION, BlockType.DEBUG))
OWN = f'''
[questions]
action = ["{ACTION}"]
debug = ["{DEBUG}"]
'''
"""The question that the ticks had already asked."""


@pytest.fixture(scope="module")
def job(installation: Installation) -> int:
    number = int(installation.json("enqueue", TICTACTOE, "-n", "3", "--ticks", "4", "--seed", "7")["job"])
    installation.wait(number)
    return number


@contextmanager
def writing(installation: Installation) -> Iterator[Connection]:
    """A transaction in the installation's database."""
    db = pooled(urls.database_url(installation.config))
    try:
        with db.begin() as conn:
            yield conn
    finally:
        db.close()


def rubric(folder: Path, text: str) -> Path:
    path = folder / "rubric.toml"
    path.write_text(text)
    return path


def test_the_same_question_gets_the_same_answer_as_in_the_tick(
    installation: Installation, job: int, tmp_path: Path
) -> None:
    """So the model reads the same as it did then, token by token."""
    where = f"job_id = {job} and type in ('action', 'debug')"
    for over in ("blocks", "candidates"):
        row = installation.json(
            "rescore", "--rubric", rubric(tmp_path, OWN), "--where", where, "--name", over, "--over", over, "--wait"
        )
        assert row["state"] == "done"
        assert row["items"] == row["done"] == row["answers"] > 5
        assert row["failed"] == 0
    rows = installation.sql(
        """
        select a.campaign, a.yes, a.no, s.yes, s.no, a.context_tokens, p.tokens
        from campaign_answers a join scores s on s.candidate_id = a.candidate_id and s.question = a.question
          and s.stage = case when a.campaign = 'blocks' and exists (
            select from scores r where r.candidate_id = a.candidate_id and r.stage = 'raw'
          ) then 'raw' else 'selection' end
        join prompts p on p.step_id = s.step_id
        """
    )
    assert len(rows) > 20
    for campaign, yes, no, yes_then, no_then, tokens, tokens_then in rows:
        assert (campaign, tokens) == (campaign, tokens_then)
        assert (yes, no) == (yes_then, no_then), campaign
    again = installation.cli("rescore", "--rubric", rubric(tmp_path, OWN), "--where", where, "--name", "blocks")
    assert again.returncode == 2
    assert "never overwritten" in again.stderr


def test_a_campaign_of_the_example_rubric_is_calibrated_and_used(
    installation: Installation, job: int, tmp_path: Path
) -> None:
    text = (ROOT / "docs" / "rubric.toml").read_text().replace("assertions = false", "assertions = true")
    path = rubric(tmp_path, text)
    where = f"job_id = {job}"
    plan = installation.json("rescore", "--rubric", path, "--where", where, "--dry-run")
    assert plan["found"] > plan["asked"] > 0
    row = installation.json("rescore", "--rubric", path, "--where", where, "--name", "all", "--wait")
    assert (row["state"], row["failed"], row["items"]) == ("done", 0, plan["asked"])
    assert row["answers"] >= plan["questions"]
    truths = dict(installation.sql("select truth, count(*) from campaign_answers where campaign = 'all' group by 1"))
    assert truths.keys() >= {None, "ran", "evaluation", "assertion"}
    assert sum(truths.values()) == row["answers"]
    found = installation.json("calibrate", "--campaign", "all")["questions"]
    counted = installation.sql(
        """
        select question, truth, count(*), count(*) filter (where answer) from calibration_pairs
        where campaign = 'all' and exact and score is not null group by 1, 2 order by 1, 2
        """
    )
    assert [(one["question"], one["truth"], one["labels"], one["positives"]) for one in found] == counted
    shown = installation.cli("calibrate", "--campaign", "all")
    assert shown.returncode == 0
    assert "SIMULATED" in shown.stdout
    assert "few labels" in shown.stdout
    refused = installation.cli("calibrate", "--campaign", "all", "--where", "answer", "--fit", "x")
    assert refused.returncode == 2
    assert "a correction takes 20 of each" in refused.stderr


def test_a_job_stores_a_copy_of_a_correction(installation: Installation, job: int) -> None:
    with writing(installation) as conn:
        fit = Fit(ACTION, -2.0, 0.5, 100, 50, 0.2, 0.1)
        campaigns.save_correction(conn, "round", [vars(fit)], campaign=None, condition=None, version="0")
    missing = installation.cli("enqueue", TICTACTOE, "--correction", "none")
    assert missing.returncode == 2
    assert "there are round" in missing.stderr
    corrected = int(
        installation.json("enqueue", TICTACTOE, "--ticks", "2", "--seed", "7", "--correction", "round")["job"]
    )
    installation.wait(corrected)
    [(settings, status)] = installation.sql(
        "select j.settings, t.status from jobs j join traces t on t.job_id = j.id where j.id = :j", j=corrected
    )
    assert (settings["corrections"], status) == ({ACTION: [-2.0, 0.5]}, "ended")
    # Raw scores are those of the model. The draw uses the corrected ones.
    scores = installation.sql(
        """
        select b.score, (select avg(s.score) from scores s where s.candidate_id = b.candidate_id and s.stage = case
          when exists (select from scores r where r.candidate_id = b.candidate_id and r.stage = 'raw') then 'raw'
          else 'selection' end) from blocks b join traces t on t.id = b.trace_id
        where t.job_id = :j and b.type = 'action' and b.compiles
        """,
        j=corrected,
    )
    assert scores
    for recorded, raw in scores:
        assert recorded == pytest.approx(raw)


def test_wrong_use_is_refused(installation: Installation, job: int, tmp_path: Path) -> None:
    good = rubric(tmp_path, OWN)
    for arguments, message in (
        ([], "give --rubric with --where, or one of --list"),
        (["--list", "--stop", "x"], "give --rubric with --where, or one of --list"),
        (["--rubric", good], "give --where"),
        (["--rubric", "/nowhere", "--where", "true"], "can't be read"),
        (["--rubric", good, "--where", "typo = 1"], 'column "typo" does not exist'),
        (["--rubric", good, "--where", "true; drop table traces"], "--where:"),
        (["--rubric", good, "--where", "type = 'genesis'"], "none that the model wrote"),
        (["--stop", "nobody"], "there is no campaign 'nobody'"),
    ):
        done = installation.cli("rescore", *arguments)
        assert (done.returncode, message in done.stderr, done.stderr.count("\n")) == (2, True, 1), done.stderr


def test_a_campaign_is_stopped_continues_and_waits_for_its_model(
    installation: Installation, job: int, tmp_path: Path
) -> None:
    arguments = ("rescore", "--rubric", rubric(tmp_path, OWN), "--where", f"job_id = {job}", "--name", "stopped")
    installation.json(*arguments)
    assert installation.json("rescore", "--stop", "stopped")["state"] in ("stopped", "done")
    assert installation.json("rescore", "--resume", "stopped", "--wait")["state"] == "done"
    before = installation.sql("select id, yes from answers order by 1")
    blocks = installation.sql("select block_id from campaign_answers where campaign = 'stopped'")
    with writing(installation) as conn:  # the server has lost the model since the campaign was created
        ids = [int(block) for [block] in blocks]
        campaigns.create(conn, "lost", parse(OWN), "blocks", ids, condition="", model="lost-model", version="0")
    installation.json("rescore", "--resume", "lost")
    # Another server may have it: the campaign waits, and the fault is shown.
    until(lambda: "lost-model" in installation.cli("status").stderr, "no fault names the model")
    assert installation.json("rescore", "--stop", "lost")["failed"] == 0
    assert "SIMULATED" in installation.cli("rescore", "--list").stdout
    assert installation.sql("select id, yes from answers order by 1") == before
    assert [row["name"] for row in installation.json("rescore", "--list")][:2] == ["lost", "stopped"]


def test_a_text_too_long_for_the_model_fails_alone(installation: Installation, job: int, tmp_path: Path) -> None:
    """One candidate of a round is made too long. It is asked about after its text is restored."""
    [(step, candidate, text)] = installation.sql(
        """
        select c.step_id, c.id, c.text from candidates c join traces t on t.id = c.trace_id
        where t.job_id = :j and c.type = 'action' and c.position = 1 order by c.id limit 1
        """,
        j=job,
    )
    change = Statement("update candidates set text = :text where id = :id")
    with writing(installation) as conn:
        conn.execute(change, {"text": "word " * 300_000, "id": candidate})
    where = f"candidate_id in (select id from candidates where step_id = {step})"
    done = installation.cli(
        "rescore", "--rubric", rubric(tmp_path, OWN), "--where", where, "--over", "candidates", "--name", "long",
        "--wait", "--json",
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    row = json.loads(done.stdout)
    assert (row["state"], row["failed"], row["answers"]) == ("done", 1, row["items"] - 1)
    [(reason,)] = installation.sql(
        """
        select i.failure from campaign_items i join campaign_batches b on b.id = i.batch_id
        join campaigns c on c.id = b.campaign_id where c.name = 'long' and i.candidate_id = :id
        """,
        id=candidate,
    )
    assert reason.startswith("model: ")
    assert "weavegen rescore --retry NAME" in installation.cli("rescore", "--list").stdout
    with writing(installation) as conn:
        conn.execute(change, {"text": text, "id": candidate})
    again = installation.json("rescore", "--retry", "long", "--wait")
    assert (again["state"], again["failed"], again["answers"]) == ("done", 0, row["items"])


@pytest.mark.parametrize("format", ["dpo", "verifier"])
def test_a_release_is_written_verified_and_written_again(
    installation: Installation, job: int, tmp_path: Path, format: str
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    name = f"of {format}"
    made = installation.json(
        "release", name, "--format", format, "--out", first, "--split", "train=0.5,test=0.5",
        "--where", f"job_id = {job}", "--near-duplicates", "0.7",
    )  # fmt: skip
    assert made["facts"]["rows"]["kept"] > 0
    assert made["facts"]["tokenizer"]["wrote_the_traces"] is True
    assert made["facts"]["contamination"]["future"]["count"] == 0
    assert "SIMULATED MODEL DATA" in (first / "README.md").read_text()
    assert "nothing differs" in installation.cli("release", name, "--verify", first).stdout
    installation.json("release", name, "--rebuild", second)
    for path in first.rglob("*"):
        if path.is_file():
            assert path.read_bytes() == (second / path.relative_to(first)).read_bytes()
    (second / "README.md").write_text("")
    differs = installation.cli("release", name, "--verify", second)
    assert (differs.returncode, differs.stdout) == (1, "README.md differs\n")
    assert name in installation.cli("release", "--list").stdout


def test_a_correction_is_fitted_to_grounded_labels(installation: Installation, job: int) -> None:
    """For each executed block the model says twenty times, with 90 %, that it runs."""
    with writing(installation) as conn:
        conn.execute(
            Statement(
                """
                insert into scores
                  (trace_id, step_id, candidate_id, position, stage, rubric, question, yes, no, score)
                select b.trace_id, c.step_id, c.id, 1000 + n, 'raw', 'r', :question, 0.9, 0.1, ln(9.0)
                from blocks b join candidates c on c.id = b.candidate_id cross join generate_series(1, 20) n
                where b.ran is not null
                """
            ),
            {"question": RAN_QUESTION},
        )
    [(ran, failed)] = installation.sql(
        """
        select 20 * count(*) filter (where ran), 20 * count(*) filter (where not ran)
        from blocks where ran is not null and candidate_id is not null
        """
    )
    where = f"question = '{RAN_QUESTION}'"
    if not failed:
        pytest.fail("no block failed: choose another seed")
    made = installation.json("calibrate", "--where", where, "--fit", "planted")
    [one], [fit] = made["questions"], made["fits"]
    labels = ran + failed
    assert (one["labels"], one["positives"], one["truth"]) == (labels, ran, "ran")
    assert one["brier"] == pytest.approx((0.01 * ran + 0.81 * failed) / labels)
    assert one["log_loss"] == pytest.approx(-(ran * math.log(0.9) + failed * math.log(0.1)) / labels)
    assert one["calibration_error"] == pytest.approx(abs(0.9 - ran / labels))
    assert one["auc"] == 0.5
    assert [bin["labels"] for bin in one["bins"]] == [*[0] * 9, labels]
    # There is only one score. Its corrected log odds are those of the share that ran.
    corrected = fit["slope"] * math.log(9.0) + fit["intercept"]
    assert corrected == pytest.approx(math.log(ran / failed), abs=0.05)
    assert fit["brier_before"] == pytest.approx(one["brier"])
    assert installation.json("enqueue", TICTACTOE, "--ticks", "1", "--correction", "planted")["job"] > job
    taken = installation.cli("calibrate", "--where", where, "--fit", "planted")
    assert (taken.returncode, "never overwritten" in taken.stderr) == (2, True)
