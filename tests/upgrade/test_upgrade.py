"""A database that an earlier version wrote, with open traces, opens with this one.

version_0_1.dump was written by `weavegen backup` of the last commit before the modules moved into rooms, while these
traces were open: a game with settings under their old names, a tree search, planning, FunSearch, and a request to the
toolsmith.
"""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.installation import Installation
from weavegen.services import fleet

DUMP = Path(__file__).parent / "version_0_1.dump"


@pytest.fixture
def upgraded() -> Iterator[Installation]:
    home = Path(tempfile.mkdtemp(prefix="weavegen-upgrade-"))
    installation = Installation(home)
    try:
        for command in (["restore", str(DUMP)], ["up"]):
            done = installation.cli(*command)
            assert done.returncode == 0, done.stderr
        yield installation
    finally:
        fleet.down(installation.config)
        shutil.rmtree(home, ignore_errors=True)


FINISHED = "select trace_id, number, run, first_block, reward from ticks where finished_at is not null"
RESTARTED = "select distinct trace_id from events where kind = 'tick restarted'"


def test_open_traces_of_the_previous_version_continue(upgraded: Installation) -> None:
    """Finished ticks stay. A tick under way goes on, or starts over if its program asks for other steps now."""
    finished = upgraded.sql(FINISHED)
    open_traces = upgraded.sql("select id, blocks, status from traces where finished_at is null order by id")
    before = {id: blocks for id, blocks, _ in open_traces}
    assert len(before) >= 5
    # One of them waits for a person's answer, and for nothing else.
    answered = upgraded.cli("request", "answer", "2", "one two three")
    assert answered.returncode == 0, answered.stderr
    for (job,) in upgraded.sql("select id from jobs"):
        upgraded.wait(job, seconds=240)
    rows = upgraded.sql("select id, blocks, status from traces where id = any(:ids)", ids=list(before))
    assert {status for _, _, status in rows} == {"ended"}
    restarted = {id for [id] in upgraded.sql(RESTARTED)}
    assert restarted < before.keys()
    assert all(blocks > before[id] for id, blocks, _ in rows if id not in restarted)
    assert set(finished) < set(upgraded.sql(FINISHED))
    done = upgraded.cli("audit")
    assert done.returncode == 0, done.stdout
    assert "no damage" in done.stdout


def test_settings_under_their_old_names_are_read(upgraded: Installation) -> None:
    [(stored,)] = upgraded.sql("select settings from jobs where id = 9")
    assert stored["young"] == 20
    done = upgraded.cli("retune", "9", "young=30")
    assert done.returncode == 0, done.stderr
    assert "setting young is now called same_type_until" in done.stderr
    [(stored,)] = upgraded.sql("select settings from job_settings where job_id = 9 order by revision desc limit 1")
    assert (stored["same_type_until"], stored["top_k_hits"]) == (30, 9)
    assert "young" not in stored
