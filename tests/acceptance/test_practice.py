"""Practice with nano, a game of survival, NetHack where it is installed, and jobs that may use the network."""

import shutil
import socket

import pytest

from tests.support import ROOT
from tests.support.installation import Installation

BOOTSTRAPS = ROOT / "bootstraps"
NANO, ZOMBIES, NETHACK = (BOOTSTRAPS / f"{name}.py" for name in ("nano_practice", "zombie_survival", "nethack"))


def ended(installation: Installation, job: int) -> None:
    """Wait for a job. None of its traces must have failed."""
    installation.wait(job)
    rows = installation.sql("select status, failure from traces where job_id = :job", job=job)
    assert {status for status, _ in rows} == {"ended"}, rows


@pytest.mark.skipif(shutil.which("nano") is None, reason="nano is not installed")
def test_nano_practice(installation: Installation) -> None:
    job = installation.json("enqueue", NANO, "-n", "2", "--ticks", "16", "--seed", "5", "-p", "text=bread")["job"]
    ended(installation, job)
    returned = installation.sql("select ended_because, returned from traces where job_id = :job", job=job)
    assert returned == [("returned", {"similarity": 1.0, "file_is_equal": True})] * 2
    titles = installation.sql(
        "select distinct b.title from blocks b join traces t on t.id = b.trace_id "
        "where t.job_id = :job and b.type = 'observation'",
        job=job,
    )
    assert {"WeaveNano (/app/practice.txt)", "Differences"} <= {title for [title] in titles}


def test_zombie_survival(installation: Installation) -> None:
    job = installation.json("enqueue", ZOMBIES, "-n", "2", "--ticks", "12", "--seed", "5")["job"]
    ended(installation, job)
    rows = installation.sql(
        "select t.id, count(distinct b.tick), count(*) filter (where b.body like '%command(\"%') "
        "from blocks b join traces t on t.id = b.trace_id "
        "where t.job_id = :job and b.type = 'action' and b.ran group by 1",
        job=job,
    )
    assert len(rows) == 2
    for _, ticks, commands in rows:
        assert ticks >= 4
        assert commands >= 4
    places = installation.sql(
        'select distinct substring(b.body from \'"place": "(\\w+)"\') from blocks b '
        "join traces t on t.id = b.trace_id where t.job_id = :job and b.title = 'State'",
        job=job,
    )
    assert len(places) >= 3, "Have the agents visited several places?"


@pytest.mark.skipif(shutil.which("nethack", path="/usr/games:/usr/bin") is None, reason="NetHack is not installed")
def test_nethack(installation: Installation) -> None:
    job = installation.json("enqueue", NETHACK, "--ticks", "6", "--seed", "5")["job"]
    ended(installation, job)
    shown = installation.sql(
        "select b.body from blocks b join traces t on t.id = b.trace_id "
        "where t.job_id = :job and b.title = 'WeaveNethack' order by b.index",
        job=job,
    )
    assert len(shown) >= 1
    assert all("Last keys sent" in body for [body] in shown)


def test_a_job_may_use_the_hosts_network_if_it_requests_it(installation: Installation) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        file = installation.home / "connect.py"
        file.write_text(
            "import socket\n"
            "def action_connect(self):\n"
            "    main = agent.subagent('main', None, 'Connect', {'connected': 'boolean'}, 5)\n"
            "    code = socket.socket().connect_ex(('127.0.0.1', args.params['port']))\n"
            "    main.return_to_caller({'connected': code == 0})\n"
            "    return code\n"
            "self.add_action('Connect', action_connect)\n"
        )
        port = ("-p", f"port={server.getsockname()[1]}")
        for option, connected in ((("--network", "host"), True), ((), False)):
            job = installation.json("enqueue", file, *port, *option)["job"]
            ended(installation, job)
            [[returned, started]] = installation.sql(
                "select t.returned, e.detail from traces t join events e on e.trace_id = t.id "
                "where t.job_id = :job and e.kind = 'started'",
                job=job,
            )
            assert returned == {"connected": connected}
            assert started == ("on the host's network" if connected else None)
    done = installation.cli("enqueue", file, "--network", "moon")
    assert done.returncode == 2
    assert "'none', 'host'" in done.stderr
