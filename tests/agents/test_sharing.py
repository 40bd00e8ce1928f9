"""The pool is shared: servers join and leave while real workers write traces, and a ledger records who used what."""

import http.server
import json
import threading
import time
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from simulation.process import Process
from tests.support import ROOT
from tests.support.installation import Installation, installed
from weavegen import sql
from weavegen.cli.pool import GROUPS
from weavegen.errors import UsageError
from weavegen.pool import capabilities, metrics
from weavegen.pool.http import Http
from weavegen.pool.metrics import Metrics
from weavegen.pool.served import address
from weavegen.store import urls
from weavegen.store.session import pooled

KEY = "sk-of-the-configured-servers"
TRACES = 6
ENDLESS = """
def seen(self):
    simple_evaluate_outputs(make_simple_score_prompt("Is this news?"), ["Nothing new.", "A fly has landed."])
    return "Nothing new."

def action_start(self):
    main = agent.subagent("main", None, "Watch, and never return.", {}, 600)
    main.add_observation_view("Seen", seen)

self.add_action("Start", action_start)
"""
BY_KIND = """
select kind, sum(requests)::bigint, sum(sequences)::bigint, sum(prompt_tokens)::bigint,
  sum(sampled_tokens)::bigint, sum(uncounted)::bigint
from pool_usage where job_id = :job group by kind
"""
SAMPLED = """
select count(*), sum(c.tokens)::bigint from candidates c join traces t on t.id = c.trace_id where t.job_id = :job
"""
ASKED = "select count(*) from scores s join traces t on t.id = s.trace_id where t.job_id = :job"
LEFT = """
select count(*) = 0 from steps s join traces t on t.id = s.trace_id
where t.server = :server and s.kind in ('sample', 'score') and s.status = 'running'
"""


@pytest.fixture(scope="module")
def sims(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Process]]:
    folder = tmp_path_factory.mktemp("sims")
    found = [Process(folder, name, "--inter-token", "1", "--slots", "64") for name in ("a", "b")]
    yield found
    for sim in found:
        sim.kill()


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Metrics:
    """The counters of a server after one probe, such as `pool add` sends. The ledger does not have it."""
    sim = Process(tmp_path_factory.mktemp("probed"), "c")
    capabilities.probe(sim.url, "EMPTY")
    counted = counters(sim)
    sim.kill()
    return counted


@pytest.fixture(scope="module")
def pool(sims: list[Process]) -> Iterator[Installation]:
    """Workers without a configured server: all servers are lent. At first only the first of `sims` is lent."""
    with installed("--model", "none", WEAVEGEN_USER="ada", OPENAI_API_KEY=KEY) as installation:
        done = installation.cli("pool")
        assert (done.returncode, "weavegen pool add URL" in done.stderr) == (2, True)
        added = installation.json("pool", "add", sims[0].url, "--owner", "grace")
        assert added.pop("lacks") == [
            "adapters: start vLLM with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True"
        ]
        assert added == {"url": sims[0].url, "owner": "grace", "model": "weavegen-sim", "traces": 0}
        yield installation


@pytest.fixture(scope="module")
def undisturbed(pool: Installation) -> int:
    """A job that used only one server."""
    job = play(pool, ticks=2)
    pool.wait(job)
    return job


def play(pool: Installation, ticks: int, *options: str) -> int:
    file = pool.home / "endless.py"
    file.write_text(ENDLESS)
    fixed = ("-n", str(TRACES), "--ticks", str(ticks), "--seed", "5", "--set", "rounds=[4]")
    return int(pool.json("enqueue", file, *fixed, *options)["job"])


def counters(sim: Process) -> Metrics:
    reader = Http("EMPTY", 5.0)
    try:
        return metrics.read(sim.url, reader)
    finally:
        reader.close()


def test_the_ledger_equals_the_servers_counters(
    pool: Installation, sims: list[Process], undisturbed: int, probe: Metrics
) -> None:
    kinds = {row[0]: row[1:] for row in pool.sql(BY_KIND, job=undisturbed)}
    assert set(kinds) == {"sample", "score", "execute"}
    assert pool.sql(SAMPLED, job=undisturbed) == [(kinds["sample"][1], kinds["sample"][3])]
    assert pool.sql(ASKED, job=undisturbed)[0][0] == kinds["score"][1] == kinds["score"][3]
    counted = counters(sims[0])
    assert sum(row[2] for row in kinds.values()) == counted.prompt - probe.prompt
    assert sum(row[3] for row in kinds.values()) == counted.generated - probe.generated
    assert sum(row[4] for row in kinds.values()) == 0


def test_groupings_of_the_ledger(pool: Installation, sims: list[Process], undisturbed: int) -> None:
    db = pooled(urls.database_url(pool.config))
    with db.connect() as conn:
        [by_server], [by_owner], [by_job], [by_user] = (
            conn.execute(sql.load("store/pool_usage", columns=GROUPS[by])).mappings()
            for by in ("server", "owner", "job", "user")
        )
    db.close()
    assert (by_server["server"], by_server["owner"]) == (sims[0].url, "grace")
    assert by_owner["owner"] == "grace"
    assert by_user["enqueued_by"] == "ada"
    assert (by_job["job_id"], by_job["job"]) == (undisturbed, "endless.py")
    sums = ("requests", "sequences", "prompt_tokens", "cached_tokens", "sampled_tokens", "uncounted")
    for name in sums:
        assert by_server[name] == by_owner[name] == by_job[name] == by_user[name]
    assert 0 < by_server["cached_tokens"] < by_server["prompt_tokens"]
    shown = pool.cli("pool", "usage", "--by", "job").stdout
    assert "endless.py" in shown
    assert f"{by_job['prompt_tokens']:,}" in shown


def settled(sim: Process) -> Metrics:
    """The server's counters, once no worker sends to it: workers read the pool's members every two seconds."""
    now = counters(sim)
    while True:
        time.sleep(3)
        before, now = now, counters(sim)
        if now == before and not now.running:
            return now


def test_servers_join_and_leave_while_traces_run(
    pool: Installation, sims: list[Process], undisturbed: int, probe: Metrics
) -> None:
    one, two = (sim.url for sim in sims)
    job = play(pool, 60, "--user", "bob")  # more ticks than it will reach
    pool.until("select count(server) = :n from traces where job_id = :j and status = 'running'", n=TRACES, j=job)
    assert pool.json("pool", "add", two, "--owner", "linus")["traces"] == TRACES // 2
    pool.until("select exists (select from pool_usage where job_id = :j and owner = 'linus')", j=job)

    assert pool.json("pool", "remove", one)["servers"] == 1
    pool.until(LEFT, server=one)
    before = settled(sims[0])
    assert pool.json("pool", "remove", two)["servers"] == 0
    time.sleep(5)
    idle = counters(sims[1])
    assert (idle.running, idle.waiting) == (0, 0)
    assert pool.sql("select count(*) from traces where job_id = :j and status = 'failed'", j=job) == [(0,)]
    assert counters(sims[0]).prompt == before.prompt

    assert pool.json("pool", "add", two)["owner"] == "ada"
    pool.until("select min(ticks) > 2 from traces where job_id = :j", j=job)
    state = pool.sql("select distinct status, server from traces where job_id = :j", j=job)
    assert state == [("running", two)]
    assert set(pool.bodies(undisturbed)) < set(
        pool.bodies(job)
    )  # the texts do not depend on the server that wrote them
    pool.json("cancel", str(job))
    about = ("--where", "type = 'action'", "--limit", "10", "--wait")
    assert pool.cli("rescore", "--rubric", ROOT / "docs" / "rubric.toml", *about).returncode == 0
    assert pool.sql("select sum(sequences) > 0 from pool_usage where kind = 'rescore'") == [(True,)]
    deadline = time.monotonic() + 30
    while any(counters(sim).running for sim in sims):  # lost answers count too
        assert time.monotonic() < deadline
        time.sleep(0.1)
    time.sleep(1)
    assert pool.sql("select distinct enqueued_by from pool_usage where job_id = :j", j=job) == [("bob",)]
    owners = {row["owner"]: row for row in pool.json("pool", "usage", "--by", "owner")}
    assert set(owners) == {"grace", "linus", "ada"}
    counted = [counters(sim) for sim in sims]
    prompt = sum(found.prompt for found in counted) - 3 * probe.prompt  # three servers were added
    generated = sum(found.generated for found in counted) - 3 * probe.generated
    assert sum(row["prompt_tokens"] for row in owners.values()) == prompt
    assert sum(row["sampled_tokens"] for row in owners.values()) == generated
    listed = pool.json("pool", "list", "--all")
    assert [(row["url"], row["owner"], row["removed_at"] is None) for row in listed] == [
        (one, "grace", False), (two, "linus", False), (two, "ada", True),
    ]  # fmt: skip
    [shown] = pool.json("pool")
    assert (shown["url"], shown["owner"], shown["state"]) == (two, "ada", "up")


class Other(http.server.BaseHTTPRequestHandler):
    """A server of another model, which records its requests."""

    seen: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.seen.append(str(self.headers))
        body = json.dumps({"data": [{"id": "another-model"}]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def test_servers_that_must_not_join_and_that_must_not_leave(pool: Installation) -> None:
    [present, *_] = pool.json("pool", "list")

    def refused(*arguments: str, **environ: str) -> str:
        done = pool.cli("pool", *arguments, **environ)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), arguments
        return done.stderr

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Other) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        strange = f"http://127.0.0.1:{server.server_port}/v1"
        added = pool.json("pool", "add", strange)
        assert (added["model"], added["traces"]) == ("another-model", 0)  # the traces stay with their model
        done = pool.cli("enqueue", pool.home / "endless.py", "-n", "1")
        assert (done.returncode, "the pool serves several models: give one with --model" in done.stderr) == (2, True)
        done = pool.cli("enqueue", pool.home / "endless.py", "--model", "a-third-model")
        assert (done.returncode, "has no model 'a-third-model'" in done.stderr) == (2, True)
        pool.json("pool", "remove", strange)
        server.shutdown()
    assert Other.seen
    assert not any(KEY in headers for headers in Other.seen)
    nobody = "http://127.0.0.1:9/v1"
    assert "is in the pool" in refused("add", present["url"])
    assert "no model server answers at this address" in refused("add", nobody)
    assert "hush" not in refused("add", "http://me:hush@127.0.0.1:9/v1")
    assert "was not added" in refused("remove", nobody)
    assert "is one of OPENAI_BASE_URL" in refused("remove", nobody, OPENAI_BASE_URL=nobody)


@pytest.mark.parametrize(
    "text",
    [
        "http://me:hush@gpu:8000/v1",
        "http://hush@gpu/v1",
        "http://gpu/v1?key=hush",
        "http://gpu/v1#hush",
        "http://gpu:hush/v1",
        "hush://gpu/v1",
        "gpu:8000",
        "http://gpu:8000",
        "http:///v1",
        "http://gpu/\x1b[31m/v1",
        "",
    ],
)
def test_an_invalid_server_address_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(UsageError, match="give http://host:port/v1") as refused:
        address(text)
    assert "hush" not in str(refused.value)


def test_an_address_is_stored_in_one_form() -> None:
    assert address(" http://GPU7:8000/v1/ ") == "http://gpu7:8000/v1"
    assert address("https://[::1]/llm/v1") == "https://[::1]/llm/v1"
