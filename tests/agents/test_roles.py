"""Two models in one installation: one writes, the other answers the yes/no questions."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import TICTACTOE
from tests.support.installation import Installation, installed
from tests.support.nano_server import serving
from weavegen.nano import WEIGHTS

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
