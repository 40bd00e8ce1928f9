"""Forks by the command line, with real workers, environments and the simulated model."""

import pytest

from tests.support import TICTACTOE
from tests.support.installation import Installation

LONG = 180


@pytest.fixture(scope="module")
def trace(installation: Installation) -> int:
    """A game that has ended."""
    small = ("--set", "window=12", "--set", "window_kept=6")  # so that retrieval can find blocks
    job = int(installation.json("enqueue", TICTACTOE, "--ticks", "4", "--seed", "11", *small)["job"])
    installation.wait(job, LONG)
    return int(installation.sql("select id from traces where job_id = :job", job=job)[0][0])


def index_of(installation: Installation, trace: int, tick: int, type: str) -> int:
    query = "select min(index) from blocks where trace_id = :trace and tick = :tick and type = :type"
    return int(installation.sql(query, trace=trace, tick=tick, type=type)[0][0])


def bodies(installation: Installation, trace: int) -> list[tuple[object, ...]]:
    query = "select type, body, ran, answer, probability from blocks where trace_id = :trace order by index"
    return installation.sql(query, trace=trace)


def test_forks_continue_from_the_middle_of_a_tick_to_their_end(installation: Installation, trace: int) -> None:
    at = index_of(installation, trace, 2, "action")
    made = installation.json("fork", str(trace), "--at", str(at), "-n", "2", "--seed", "5")
    assert (made["fork_of"], made["fork_at"]) == (trace, at)
    installation.wait(made["job"], LONG)
    whole = bodies(installation, trace)
    found = [bodies(installation, fork) for fork in made["traces"]]
    statuses = installation.sql("select status, failure from traces where job_id = :job", job=made["job"])
    assert statuses == [("ended", None)] * 2
    for one in found:
        assert one[:at] == whole[:at]
    assert len({str(one[at:]) for one in [*found, whole]}) > 1
    for fork in made["traces"]:
        [[rebuilt]] = installation.sql(
            "select detail from events where trace_id = :fork and kind = 'environment rebuilt'", fork=fork
        )
        assert rebuilt.endswith("all came out as before")
        # The first prompt equals the other trace's for this block, so the server has it in its cache.
        [[cached, tokens, same_server]] = installation.sql(
            """
            select p.cached, p.tokens, p.server = (select server from traces where id = :trace)
            from prompts p join steps s on s.id = p.step_id
            where p.trace_id = :fork and s.kind = 'sample' order by s.id limit 1
            """,
            fork=fork,
            trace=trace,
        )
        assert same_server
        assert cached > 0.95 * tokens
    # A fork of a fork, and a fork of a fork at a block that it shares with the original.
    again = installation.json("fork", str(made["traces"][0]), "--at", str(len(found[0]) - 2))
    early = installation.json("fork", str(made["traces"][1]), "--at", str(at - 1), "--set", "action.rounds=[2]")
    assert (again["fork_of"], early["fork_of"]) == (made["traces"][0], trace)
    for job in (again["job"], early["job"]):
        installation.wait(job, LONG)
        assert installation.sql("select distinct status from traces where job_id = :job", job=job) == [("ended",)]
    for job in (made["job"], again["job"], early["job"]):
        audit = installation.cli("audit", "--job", str(job), "--no-host")
        assert audit.returncode == 0, audit.stdout


def test_a_fork_of_a_fork_has_its_settings_from_any_block_on(installation: Installation, trace: int) -> None:
    at = index_of(installation, trace, 2, "action")
    varied = installation.json("fork", str(trace), "--at", str(at), "--set", "action.temperature=1.3")
    installation.wait(varied["job"], LONG)
    again = installation.json("fork", str(varied["traces"][0]), "--at", str(at), "--set", "action.rounds=[2]")
    assert again["fork_of"] == trace
    settings = "select s.settings -> 'types' -> 'action' from jobs j join job_settings s on s.job_id = j.id "
    [[own]] = installation.sql(settings + "and s.revision = j.revision where j.id = :job", job=again["job"])
    assert (own["temperature"], own["rounds"]) == (1.3, [2])
    installation.cli("cancel", str(again["job"]))


def test_wrong_use_is_a_one_line_error(installation: Installation, trace: int) -> None:
    for arguments, complaint in {
        ("999999", "--at", "5"): "there is no trace 999999",
        (str(trace), "--at", "1"): "belongs to the bootstrap",
        (str(trace), "--at", "100000"): "give an index from 3 to",
        (str(trace), "--at", "5", "-n", "0"): "-n 0: give a number from 1",
        (str(trace), "--at", "5", "--set", "nonsense=1"): "nonsense",
        (str(trace), "--at", "5", "--seed", str(2**70)): "more than 64 bits",
    }.items():
        done = installation.cli("fork", *arguments)
        assert (done.returncode, done.stdout) == (2, ""), arguments
        assert complaint in done.stderr
        assert len(done.stderr.splitlines()) == 1
