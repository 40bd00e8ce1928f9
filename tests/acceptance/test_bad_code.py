"""Faulty code of a bootstrap or callback causes an error block or a clear refusal, never an end without a reason."""

import json
import time
from textwrap import indent

import pytest
from celery import Celery

from tests.support.installation import Installation
from weavegen.services import redis

NINE = 'for number in range(9):\n    self.add_observation_view(f"view {number}", seen)\nreturn "nine views"'
TOOL = (
    'from tools.editor import WeaveEditor\nWeaveEditor(self, "a.txt")\n'
    "title = self.observation_views[-1]['title']\nself.remove_observation_view(title)\nreturn 'removed'"
)
FAILS = {
    "nine views": (NINE, "ValueError: There are eight observation views already"),
    "a tool's view removed": (TOOL, "close the tool instead"),
    "a return that breaks the schema": ('self.return_to_caller({"count": "three"})', "the schema asks for integer"),
    "a lambda registered": ('self.add_action("Go", lambda self: 1)', "a function of one argument that has a name"),
    "a recursion without end": ("def down(n):\n    return down(n + 1)\nreturn down(0)", "RecursionError"),
    "an exit": ("raise SystemExit(3)", "SystemExit"),
    "a wait without end": ("import threading\nthreading.Event().wait()", "TimeoutError"),
}
"""Name: (body of a callback, part of its error)."""
WORKS = {
    "an object that is no JSON value": ("return object()", "<object object>"),
    "a list that contains itself": ("a = []\na.append(a)\nreturn a", "[[...]]"),
    "a hundred megabytes printed": ("print('x' * 10**8)\nreturn 'printed'", "printed"),
    "a hundred megabytes returned": ("return 'x' * 10**8", "characters left out"),
}
SECONDS = 5
"""Seconds that a callback may take: enough for a hundred megabytes while all other traces run."""
BOOTSTRAP = """
def seen(self):
    return "seen"

def callback(self):
{body}

def action_start(self):
    main = agent.subagent("main", None, "Go wrong", {{"count": "integer"}}, 5)
{start}

self.add_action("Start", action_start)
"""


def bootstrap(body: str, start: str) -> str:
    return BOOTSTRAP.format(body=indent(body, "    "), start=indent(start, "    "))


@pytest.mark.parametrize("case", FAILS)
def test_a_faulty_bootstrap_is_refused(installation: Installation, case: str) -> None:
    body, complaint = FAILS[case]
    file = installation.home / "bad.py"
    file.write_text(bootstrap(body, "callback(main)"))
    done = installation.cli("enqueue", file, "--set", f"callback_seconds={SECONDS}")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert complaint.removeprefix("ValueError: ") in done.stderr
    assert "fix it first" in done.stderr


@pytest.fixture(scope="module")
def untried(installation: Installation) -> dict[str, tuple[str, str, str]]:
    """The same bootstraps, enqueued without a trial by another program: status, kind and reason of their traces."""
    with Celery(broker=redis.broker_url(installation.config), set_as_current=False) as producer:
        for case, (body, _) in FAILS.items():
            options = {"name": case, "settings": {"ticks": 1, "callback_seconds": SECONDS}}
            source = bootstrap(body, "callback(main)")
            producer.send_task("weavegen.enqueue", args=[source], kwargs=options, queue="control")
    query = (
        "select j.name, t.status, t.failure_kind, t.failure from traces t join jobs j on j.id = t.job_id "
        "where t.finished_at is not null and j.name = any(:cases)"
    )
    for _ in range(600):
        if len(rows := installation.sql(query, cases=list(FAILS))) == len(FAILS):
            return {row[0]: row[1:] for row in rows}  # type: ignore[misc]
        time.sleep(0.1)
    pytest.fail(f"only these have ended: {rows}")


@pytest.mark.parametrize("case", FAILS)
def test_an_untried_faulty_bootstrap_fails_its_trace_with_the_reason(
    untried: dict[str, tuple[str, str, str]], case: str
) -> None:
    status, kind, failure = untried[case]
    assert (status, kind) == ("failed", "bootstrap")
    assert FAILS[case][1] in failure


@pytest.fixture(scope="module")
def views(installation: Installation) -> dict[str, tuple[str, str]]:
    """For each faulty callback, the type and body of its view's block in a running trace of two ticks."""
    cases = FAILS | WORKS
    rows = []
    for number, (body, _) in enumerate(cases.values()):
        file = installation.home / f"view{number}.py"
        file.write_text(bootstrap(body, 'main.add_observation_view("Bad", callback)'))
        rows.append(json.dumps({"bootstrap": str(file)}))
    (installation.home / "views.jsonl").write_text("\n".join(rows))
    options = ("--ticks", "2", "--set", f"callback_seconds={SECONDS}")
    job = installation.json("enqueue", "--from", installation.home / "views.jsonl", *options)["job"]
    installation.wait(job)
    ended = installation.sql("select distinct ended_because, failure from traces where job_id = :job", job=job)
    assert ended == [("ticks", None)]
    blocks = installation.sql(
        "select b.type, b.body from blocks b join traces t on t.id = b.trace_id join ticks k "
        "on k.trace_id = t.id and k.number = 1 and b.index = k.first_block + 1 "
        "where t.job_id = :job order by t.number",
        job=job,
    )
    return dict(zip(cases, blocks, strict=True))  # type: ignore[arg-type]


@pytest.mark.parametrize("case", FAILS)
def test_a_faulty_view_in_a_running_trace_is_an_error_block(views: dict[str, tuple[str, str]], case: str) -> None:
    type, body = views[case]
    assert type == "error"
    assert FAILS[case][1] in body


@pytest.mark.parametrize("case", WORKS)
def test_values_that_are_too_large_or_invalid_are_shown_as_far_as_possible(
    views: dict[str, tuple[str, str]], case: str
) -> None:
    type, body = views[case]
    assert type == "observation"
    assert WORKS[case][1] in body
    assert len(body) < 50_000
