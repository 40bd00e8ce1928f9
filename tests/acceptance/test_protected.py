"""Protected evaluations in whole traces: recorded, rewarded, graded again after deaths, and clean in the audit."""

import json
import os
import signal

from tests.support import ROOT
from tests.support.installation import Installation
from tests.support.protected_task import HONEST, TASK
from tests.support.waiting import until

SUMS = ROOT / "bootstraps" / "sums.py"
EVALUATIONS = """
    select e.tick, e.title, e.value, e.protected, e.cause from evaluations e join traces t on t.id = e.trace_id
    where t.job_id = :job and e.scope = 'task' order by e.trace_id, e.tick, e.position
    """
TICKS = """
    select k.number, k.reward, k.protected, k.not_evaluated from ticks k join traces t on t.id = k.trace_id
    where t.job_id = :job order by k.trace_id, k.number
    """


def audited(here: Installation) -> None:
    done = here.cli("audit", "--json")
    assert done.returncode == 0, done.stdout


def test_sums_are_graded_outside_and_come_out_as_before(installation: Installation) -> None:
    here = installation
    job = here.json("enqueue", SUMS, "-n", "3", "--ticks", "8", "--seed", "11")["job"]
    here.wait(job)
    rows = here.sql(EVALUATIONS, job=job)
    assert {(protected, cause) for *_, protected, cause in rows} == {(True, None)}
    assert {value for _, _, value, *_ in rows} == {True, False}
    for returned, last, wrong in here.sql(
        "select t.returned, (select jsonb_object_agg(e.title, e.value) from evaluations e where e.trace_id = t.id "
        "and e.tick = t.ticks and e.scope = 'task'), (select b.body from blocks b where b.trace_id = t.id "
        "and b.title = 'Sum' order by b.index desc limit 1) from traces t where t.job_id = :job "
        "and t.ended_because = 'returned'",
        job=job,
    ):
        assert returned["finished"] is last["Is every sum answered?"] is True
        # What the live process counts, and what the grader finds in the answers, are the same in an honest trace.
        assert returned["none_wrong"] is last["Were all answers right?"] is ("Wrong answers: 0" in wrong)
    for _, reward, protected, not_evaluated in here.sql(TICKS, job=job):
        assert (protected, not_evaluated) == (True, 0)
        assert reward is not None
    [[ticks, left_out]] = here.sql(
        "select sum(protected_ticks), sum(not_evaluated) from text_examples where job_id = :job", job=job
    )
    assert (ticks > 0, left_out) == (True, 0)
    shown = here.sql(
        "select b.body from blocks b join traces t on t.id = b.trace_id "
        "where t.job_id = :job and b.type = 'task-reminder' and b.tick = 1",
        job=job,
    )
    assert all("Were all answers right? True\n  Is every sum answered? False" in body for [body] in shown)
    audited(here)


def bootstrap(here: Installation, name: str, body: str) -> str:
    """A bootstrap file whose action runs `body` after it has set up the task."""
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    source = TASK.replace("\n\ndef file_is_right", f"\n{lines}\n\ndef file_is_right", 1)
    source += "\ndef eval_begun(self):\n    return True\n\nself.add_evaluation('Has it begun?', eval_begun)\n"
    file = here.home / f"{name}.py"
    file.write_text(source)
    return str(file)


def test_honest_work_and_forgeries_side_by_side(installation: Installation) -> None:
    here = installation
    forged = "globals().update(file_is_right=lambda_yes, claim_is_right=lambda_yes)"
    wanted = {
        "honest": (HONEST, [True, True], 0.5, 0),
        "forged": (forged, [False, False], 0.0, 0),
        "missing": ("os.remove('out.txt')\nglobal answer\nanswer = 1", [None, False], 0.0, 1),
        "nothing": ("os.remove('out.txt')\nglobal answer\nanswer = object()", [None, None], None, 2),
    }
    for name, (body, values, reward, left_out) in wanted.items():
        job = here.json("enqueue", bootstrap(here, name, body), "--ticks", "1", "--seed", "3")["job"]
        here.wait(job)
        first = [row for row in here.sql(EVALUATIONS, job=job) if row[0] == 0]
        assert [value for _, _, value, protected, _ in first if protected] == values, name
        assert [cause for *_, cause in first] == [None if value is not None else "agent" for value in values] + [None]
        number, got, protected, count = here.sql(TICKS, job=job)[0]
        # The bootstrap's own tick has no action block, so that its reward is half the share.
        assert (number, got, protected, count) == (0, reward, True, left_out), name
    audited(here)


def test_a_trace_whose_environment_dies_is_graded_again_with_the_same_verdicts(installation: Installation) -> None:
    here = installation
    job = here.json("enqueue", SUMS, "--ticks", "12", "--seed", "21", "-p", "sums=12")["job"]
    until(lambda: here.sql("select count(*) from evaluations e join traces t on t.id = e.trace_id "
                           "where t.job_id = :job and e.tick > 1", job=job)[0][0] > 0)  # fmt: skip
    [[pid]] = here.sql(
        "select e.pid from environments e join traces t on t.id = e.trace_id "
        "where t.job_id = :job and e.closed_at is null",
        job=job,
    )
    os.kill(pid, signal.SIGKILL)
    here.wait(job)
    rows = here.sql(EVALUATIONS, job=job)
    assert {(protected, cause) for *_, protected, cause in rows} == {(True, None)}
    [[detail]] = here.sql(
        "select e.detail from events e join traces t on t.id = e.trace_id "
        "where t.job_id = :job and e.kind = 'environment rebuilt'",
        job=job,
    )
    assert "all came out as before" in detail
    audited(here)


def test_exports_say_which_rewards_are_protected(installation: Installation) -> None:
    here = installation
    job = here.json("enqueue", SUMS, "--ticks", "2", "--seed", "5")["job"]
    here.wait(job)
    rows = here.sql("select tick_protected, tick_reward from sft_examples where job_id = :job", job=job)
    assert rows
    assert all(protected and reward is not None for protected, reward in rows)
    here.json("export", "--format", "atif", "--out", here.home / "atif", "--where", f"job_id = {job}")
    [file] = (here.home / "atif").rglob("*.json")
    extra = json.loads(file.read_text())["final_metrics"]["extra"]
    assert extra["protected_ticks"] == 2
    assert extra["not_evaluated"] == 0
