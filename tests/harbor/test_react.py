"""Harbor tasks with react and a scripted model: several steps, a worker that is killed, metadata in exports."""

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harbor.world import BASE, FILES, STEPS, write_task
from tests.support.installation import Installation, installed
from tests.support.scripted_model import scripted_model
from tests.support.waiting import until


@pytest.fixture(scope="module")
def home(base: Path) -> Iterator[Installation]:
    with scripted_model() as url, installed(OPENAI_BASE_URL=url) as found:
        added = found.cli("images", "add", BASE, base)
        assert added.returncode == 0, added.stderr
        yield found


def terminal(command: str) -> str:
    """A message that calls the tool."""
    return f"<tool_call>{json.dumps({'name': 'terminal', 'arguments': {'command': command}})}</tool_call>"


def enqueue(home: Installation, place: Path) -> int:
    return int(home.json("enqueue", "--harbor", place, "--agent", "react", "--network", "none")["job"])


def answers(home: Installation, job: int) -> list[Any]:
    """What the tools answered in the job's only trace."""
    query = "select b.body from blocks b join traces t on t.id = b.trace_id where t.job_id = :job and b.type = 'tool'"
    lines = [line for [body] in home.sql(f"{query} order by b.index", job=job) for line in body.split("\n")]
    found = [json.loads(line.removeprefix("<tool_response>").removesuffix("</tool_response>")) for line in lines]
    assert all(answer["success"] for answer in found), found
    return [answer["output"] for answer in found]


def returned(home: Installation, job: int) -> Any:
    [[status, value]] = home.sql("select status, returned from traces where job_id = :job", job=job)
    assert status == "ended"
    return value


def rebuilt(home: Installation, job: int) -> list[str]:
    """What the history says about boxes that were made again."""
    query = "select e.detail from events e join traces t on t.id = e.trace_id where t.job_id = :job and e.kind = :kind"
    return [detail for [detail] in home.sql(query, job=job, kind="environment rebuilt")]


def test_a_step_has_the_files_of_the_step_before(home: Installation, tmp_path: Path) -> None:
    script = [
        terminal("printf 1 > one.txt; mkdir -p /opt/own; echo own > /opt/own/file"),
        "The first step is done.",
        terminal("cat one.txt /opt/own/file; printf 2 > two.txt"),
        "The second step is done.",
    ]
    place = write_task(tmp_path / "steps", {"steps/one/instruction.md": json.dumps(script)}, files=STEPS)
    job = enqueue(home, place)
    home.wait(job)
    assert answers(home, job)[1] == "1own\n"
    found = returned(home, job)
    assert (found["reward"], found["success"]) == (1.0, True), found
    [history] = rebuilt(home, job)
    assert "all came out as before" in history
    assert home.cli("audit").returncode == 0


def test_what_is_verified_after_the_death_of_a_worker_is_what_the_agent_left(
    home: Installation, tmp_path: Path
) -> None:
    """The time differs in each run of the command, so that a rebuilt box would have another file."""
    files = {
        "instruction.md": json.dumps([terminal("date +%s%N | tee answer.txt"), "It is done."]),
        "tests/test.sh": "#!/bin/sh\ncat answer.txt\nsleep 7.5\necho 1 > /logs/verifier/reward.txt\n",
    }
    job = enqueue(home, write_task(tmp_path / "cut", {**files}))

    def testing() -> bool:
        for place in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                if place.read_bytes() == b"sleep\x007.5\0":
                    return True
        return False

    until(testing, "the tests do not run", seconds=180)
    [[worker]] = home.sql("select worker from steps where status = 'running' and request ->> 'op' = 'verify'")
    os.kill(int(worker.rpartition(":")[2]), signal.SIGKILL)
    home.wait(job)
    assert returned(home, job)["reward"] == 1.0
    [[output, claims]] = home.sql(
        "select s.result ->> 'output', s.claims from steps s join traces t on t.id = s.trace_id "
        "where t.job_id = :job and s.request ->> 'op' = 'verify'",
        job=job,
    )
    assert claims > 1
    assert [output] == answers(home, job)
    assert rebuilt(home, job) == []
    assert home.cli("audit").returncode == 0


def test_metadata_narrows_an_export(home: Installation, tmp_path: Path) -> None:
    """As docs/harbor.md has it."""
    done = json.dumps(["There is nothing to do."])
    for category in ("security", "games"):
        table = FILES["task.toml"].replace("arithmetic", category)
        home.wait(enqueue(home, write_task(tmp_path / category, {"task.toml": table, "instruction.md": done})))
    own = "select t.id from traces t join harbor_tasks h on h.id = t.harbor_task_id where h.metadata ->> 'category' = "
    options = ("--format", "harbor", "--out", tmp_path / "out", "--where", f"trace_id in ({own}'security')")
    assert sum(home.json("export", *options)["rows"].values()) == 1
    assert [place.name.partition("__")[0] for place in (tmp_path / "out").glob("*/*__*")] == ["security"]
