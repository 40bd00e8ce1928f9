"""Two models in one installation: one writes, the other answers the yes/no questions."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from tokenizers import Tokenizer

from tests.support import ROOT, TICTACTOE
from tests.support.installation import Installation, installed
from tests.support.nano_model import make_tokenizer
from tests.support.nano_server import serving
from weavegen.chat_template import renderer
from weavegen.kernel.template import derive
from weavegen_nano import WEIGHTS

BY_MODEL = """
select s.kind, p.model, count(*) from prompts p join steps s on s.id = p.step_id join traces t on t.id = s.trace_id
where t.job_id = :job group by 1, 2 order by 1, 2
"""


@pytest.fixture(scope="module")
def installation() -> Iterator[Installation]:
    with serving(WEIGHTS) as url, installed() as one:
        one.json("pool", "add", url)
        yield one


@pytest.fixture(scope="module")
def job(installation: Installation) -> int:
    models = ("--model", "agent=weavegen-sim", "--model", "evaluator=weavegen-nano")
    rows = installation.json("run", TICTACTOE, "-n", "3", "--ticks", "3", "--seed", "4", *models)
    assert {row["status"] for row in rows} == {"ended"}
    [[number]] = installation.sql("select max(id) from jobs")
    return int(number)


def test_every_prompt_says_which_model_read_it(installation: Installation, job: int) -> None:
    rows = installation.sql(BY_MODEL, job=job)
    assert {row[:2] for row in rows} == {("sample", "weavegen-sim"), ("score", "weavegen-nano")}
    assert all(count > 10 for _, _, count in rows)
    assert installation.sql("select model, evaluator from jobs where id = :job", job=job) == [
        ("weavegen-sim", "weavegen-nano")
    ]
    homes = installation.sql("select distinct server from traces where job_id = :job", job=job)
    assert len(homes) == 1  # the prefix of a trace stays with the server that writes it


def test_whoever_enqueues_is_told_what_a_small_model_was_trained_on(installation: Installation) -> None:
    for file, warned in ((ROOT / "bootstraps" / "zombie_survival.py", True), (TICTACTOE, False)):
        done = installation.cli("enqueue", file, "--model", "weavegen-nano", "--json")
        assert done.returncode == 0, done.stderr
        assert ("writes nonsense in other tasks, such as zombie_survival" in done.stderr) is warned
        installation.json("cancel", json.loads(done.stdout)["job"])


def test_scores_come_from_the_evaluator(installation: Installation, job: int) -> None:
    """The same seeds with the simulation as its own evaluator have other scores."""
    installation.json("run", TICTACTOE, "-n", "3", "--ticks", "3", "--seed", "4", "--model", "weavegen-sim")
    query = """
        select c.job_id, avg(s.score) from scores s
        join (select c.id, t.job_id from candidates c join traces t on t.id = c.trace_id) c on c.id = s.candidate_id
        where c.job_id >= :job and s.score is not null group by 1 order by 1
    """
    [(_, judged), (_, own)] = installation.sql(query, job=job)
    assert judged != pytest.approx(own, abs=1e-6)


def test_the_audit_is_clean(installation: Installation, job: int) -> None:
    done = installation.cli("audit")
    assert done.returncode == 0, done.stdout


def test_a_researcher_of_its_own(installation: Installation, tmp_path: Path) -> None:
    task = ("--task", "Which openings won?")
    done = installation.json(
        "enqueue", "--agent", "react", *task, "--model", "weavegen-sim", "--model", "researcher=weavegen-nano"
    )
    query = "select settings -> 'delegates' -> 'research' ->> 'model' from jobs where id = :job"
    assert installation.sql(query, job=done["job"]) == [("weavegen-nano",)]


@pytest.mark.parametrize(
    ("models", "problem"),
    [
        (("judge=weavegen-nano",), "with a role of agent, evaluator, researcher"),
        (("weavegen-sim", "agent=weavegen-nano"), "two models for the agent"),
        (("weavegen-sim", "evaluator=gpt"), "has no model 'gpt'"),
        ((), "the pool serves several models"),
    ],
)
def test_models_that_are_not_served_are_refused(
    installation: Installation, models: tuple[str, ...], problem: str
) -> None:
    options = [word for model in models for word in ("--model", model)]
    done = installation.cli("enqueue", TICTACTOE, *options)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert problem in done.stderr


@pytest.fixture(scope="module")
def student(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model's folder with a byte-level tokenizer, which loses nothing, and nano's chat template."""
    folder = tmp_path_factory.mktemp("student")
    tokenizer = make_tokenizer()
    tokenizer.enable_truncation(64)  # the file has options of the program that wrote it, which do not count
    tokenizer.enable_padding(length=32)
    tokenizer.save(str(folder / "tokenizer.json"))
    for name in ("chat_template.jinja", "tokenizer_config.json"):
        if (WEIGHTS / name).exists():
            shutil.copy(WEIGHTS / name, folder)
    return folder


def exported(installation: Installation, format: str, out: Path, *options: object) -> list[dict[str, Any]]:
    installation.json("export", "--format", format, "--out", out, *options)
    [file] = out.rglob("*.parquet")
    rows: list[dict[str, Any]] = pyarrow.parquet.read_table(file).to_pylist()
    assert len(rows) > 2
    return rows


def test_a_student_learns_what_its_teacher_wrote(installation: Installation, tmp_path: Path, student: Path) -> None:
    """In the student's chat template and tokens; what it only reads has no label."""
    models = ("--model", "agent=a-student", "--model", "teacher=weavegen-sim")
    rows = installation.json("run", TICTACTOE, "--ticks", "2", "--seed", "7", *models)
    assert [row["status"] for row in rows] == ["ended"]
    [[job]] = installation.sql("select max(id) from jobs")
    assert installation.sql("select model, student from jobs where id = :job", job=job) == [
        ("weavegen-sim", "a-student")
    ]
    where = ("--where", f"job_id = {job}")
    own = exported(installation, "sft", tmp_path / "own", *where)
    of_student = exported(installation, "sft", tmp_path / "student", *where, "--student", student)
    tokenizer, template = Tokenizer.from_file(str(student / "tokenizer.json")), derive(renderer(student))
    assert len(own) == len(of_student)
    for one, row in zip(own, of_student, strict=True):
        assert row["prompt"].startswith(template.block_open)
        assert row["prompt"] != one["prompt"]
        assert tokenizer.decode(row["input_ids"], skip_special_tokens=False) == row["prompt"] + row["completion"]
        learned = [token for token, label in zip(row["input_ids"], row["labels"], strict=True) if label == token]
        assert tokenizer.decode(learned, skip_special_tokens=False) == row["completion"]
        assert row["labels"].count(-100) == len(row["labels"]) - len(learned)
    for row in exported(installation, "verifier", tmp_path / "asked", *where, "--student", student):
        assert row["context"].startswith(template.block_open)


def test_conversations_for_a_student_are_what_its_own_template_makes(
    installation: Installation, tmp_path: Path, student: Path
) -> None:
    tasks = ("--agent", "react", "--task", "Write a list.", "-n", "3", "--seed", "9")
    installation.json("run", *tasks, "--model", "teacher=weavegen-sim")
    tokenizer, render = Tokenizer.from_file(str(student / "tokenizer.json")), renderer(student)
    for row in exported(installation, "messages", tmp_path / "messages", "--student", student):
        text = tokenizer.decode(row["input_ids"], skip_special_tokens=False)
        assert text == render(row["messages"], False)
        learned = [token for token, label in zip(row["input_ids"], row["labels"], strict=True) if label == token]
        said = [message["content"] for message in row["messages"] if message["role"] == "assistant"]
        written = tokenizer.decode(learned, skip_special_tokens=False)
        assert all(content in written for content in said)
        assert len(written) < len(text) / 2


def test_a_student_that_can_not_be_read_is_one_line(installation: Installation, tmp_path: Path) -> None:
    for folder, format, said in (
        (tmp_path, "sft", "give a model's folder with tokenizer.json"),
        (WEIGHTS, "text", "--student does not apply to the format text"),
    ):
        done = installation.cli("export", "--format", format, "--out", tmp_path / "out", "--student", folder)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert said in done.stderr
