"""Tools of MCP servers in installations: offered, called once, exported. Workers and boxes are killed in calls."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest

from tests.support import ROOT
from tests.support.installation import Installation, installed
from tests.support.ports import free_port
from tests.support.scripted_model import scripted_model

SECRET = "a-secret-of-the-workers"
RUNNING = "select count(*) = 1 from steps where status = 'running' and request ->> 'op' = 'tool' and claims = 1"


class Web:
    """The server of tests/support/mcp_http.py."""

    def __init__(self, folder: Path) -> None:
        self.port, self.file = free_port(), folder / "calls"
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "tests.support.mcp_http", str(self.port), str(self.file)]
        self.process = subprocess.Popen(command, cwd=ROOT)

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    @property
    def calls(self) -> int:
        return len(self.file.read_text()) if self.file.exists() else 0


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    one = Web(tmp_path_factory.mktemp("web"))
    yield one
    one.stop()


@pytest.fixture(scope="module")
def installation(web: Web) -> Iterator[Installation]:
    with scripted_model() as url, installed(OPENAI_BASE_URL=url, WEAVEGEN_LEASE="3", MCP_KEY=SECRET) as one:
        files = one.home / "files"
        files.mkdir()
        (files / "server.py").write_text((ROOT / "tests" / "support" / "mcp_stdio.py").read_text())
        servers = {
            "own": {"command": "python3", "args": ["/app/server.py"]},
            "web": {"type": "http", "url": web.url, "headers": {"X-Key": "${MCP_KEY}"}},
        }
        (one.home / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
        yield one


def call(tool: str, **arguments: Any) -> str:
    return f"<tool_call>{json.dumps({'name': tool, 'arguments': arguments})}</tool_call>"


def enqueue(installation: Installation, *script: str) -> int:
    task, home = json.dumps(script), installation.home
    options = ("--agent", "react", "--task", task, "--mcp", home / "mcp.json", "--files", home / "files")
    return int(installation.json("enqueue", *options)["job"])


def answers(installation: Installation, job: int) -> list[Any]:
    """The answers of the tools in a job's only trace."""
    query = "select b.body from blocks b join traces t on t.id = b.trace_id where t.job_id = :job and b.type = 'tool'"
    lines = [line for [body] in installation.sql(f"{query} order by b.index", job=job) for line in body.split("\n")]
    return [json.loads(line.removeprefix("<tool_response>").removesuffix("</tool_response>")) for line in lines]


def worker_of_call(installation: Installation) -> int:
    """The process that has claimed the running call."""
    installation.until(RUNNING)
    [[name]] = installation.sql("select worker from steps where status = 'running' and request ->> 'op' = 'tool'")
    return int(name.rpartition(":")[2])


def test_a_trace_waits_for_a_server_that_nobody_reaches_and_people_see_it(installation: Installation, web: Web) -> None:
    job = enqueue(installation, call("mcp__web__headers"), "done")
    installation.until("select count(*) = 1 from steps where failure like '%nothing was sent'")
    faults = installation.cli("status").stderr + installation.cli("doctor").stdout
    assert "the MCP server web gave no answer: ConnectError" in faults
    web.start()
    installation.wait(job)
    [answer] = answers(installation, job)
    assert answer == {"success": True, "output": "${MCP_KEY}"}, "the server must get the secret, and the trace must not"


@pytest.fixture(scope="module")
def trace(installation: Installation, web: Web) -> int:
    """A trace that has called tools of both servers."""
    script = (
        call("mcp__web__add", first=1) + call("mcp__own__echo", text="hallo") + call("mcp__own__fail", text="x"),
        call("python", code="print(mcp__web__add(first=3), mcp__own__count())"),
        "done",
    )
    job = enqueue(installation, *script)
    installation.wait(job)
    assert answers(installation, job) == [
        {"success": True, "output": "3"},
        {"success": True, "output": "hallo"},
        {"success": False, "error": "no: x"},
        {"success": True, "output": "5 3\n"},
    ]
    [[number]] = installation.sql("select id from traces where job_id = :job", job=job)
    return int(number)


def test_the_model_reads_the_tools_and_exports_have_their_schemas(
    installation: Installation, trace: int, tmp_path: Path
) -> None:
    [[body, tools]] = installation.sql(
        "select b.body, s.tools from blocks b join toolsets s on s.id = b.toolset_id where b.trace_id = :t", t=trace
    )
    schemas = [json.loads(line) for line in body.split("\n") if line.startswith('{"type": "function"')]
    assert json.loads(tools) == schemas
    names = [schema["function"]["name"] for schema in schemas]
    assert names[:4] == ["terminal", "python", "read_file", "write_file"]
    assert {"mcp__own__echo", "mcp__web__add"} < set(names)
    done = installation.cli(
        "export", "--format", "messages", "--out", tmp_path / "out", "--where", f"trace_id = {trace}"
    )
    assert done.returncode == 0, done.stderr
    [file] = (tmp_path / "out").rglob("*.parquet")
    [row] = pq.read_table(file).to_pylist()
    assert json.loads(row["offered_tools"]) == schemas
    assert "tools" not in row  # TRL has the chat template declare what is in such a column


def test_a_fork_calls_no_tool_again(installation: Installation, trace: int, web: Web) -> None:
    before = web.calls
    done = installation.json("fork", str(trace), "--at", "6")
    installation.wait(int(done["job"]))
    [[ended]] = installation.sql("select status = 'ended' from traces where job_id = :job", job=done["job"])
    assert ended
    events = installation.sql(
        "select detail from events e join traces t on t.id = e.trace_id where t.job_id = :job", job=done["job"]
    )
    assert not any("came out otherwise" in str(detail) for [detail] in events), events
    assert web.calls == before


def test_a_call_over_http_that_is_lost_is_reported_and_not_repeated(installation: Installation, web: Web) -> None:
    before = web.calls
    job = enqueue(installation, call("mcp__web__sleep", seconds=8), call("mcp__web__add", first=1), "done")
    pid = worker_of_call(installation)
    while web.calls == before:
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    installation.wait(job)
    lost, added = answers(installation, job)
    line = "the answer of the MCP server was lost on the way; the call may have had effects, and is not repeated"
    assert lost == {"success": False, "error": line}
    assert added == {"success": True, "output": "3"}
    assert web.calls == before + 2


def test_a_call_in_the_box_outlives_its_worker(installation: Installation) -> None:
    job = enqueue(installation, call("mcp__own__sleep", seconds=6), call("mcp__own__count"), "done")
    os.kill(worker_of_call(installation), signal.SIGKILL)
    installation.wait(job)
    assert [answer["output"] for answer in answers(installation, job)] == ["slept", "2"]


def test_a_call_in_a_box_that_is_killed_is_reported_and_not_repeated(installation: Installation) -> None:
    job = enqueue(
        installation,
        call("mcp__own__echo", text="a"),
        call("mcp__own__sleep", seconds=20),
        call("terminal", command="cat /app/calls"),
        "done",
    )
    installation.until(RUNNING.replace("'tool'", "'tool' and request ->> 'source' like '%sleep%'"))
    [[pid]] = installation.sql("select pid from environments where closed_at is null")
    for process in (*psutil.Process(pid).children(recursive=True), psutil.Process(pid)):
        process.kill()
    installation.wait(job)
    echo, lost, calls = answers(installation, job)
    assert echo["success"]
    assert lost["error"].endswith("; the call may have had effects, and is not repeated")
    assert calls["output"] == "echo\n", "the rebuilt box has repeated the finished call, and not the lost one"


def test_the_toolsmith_is_offered_the_tools(installation: Installation, web: Web) -> None:
    """The scripted model writes no plan, so the stage that calls tools is the first that can."""
    made = installation.json("request", "create", "-o", json.dumps(["done"]), "--mcp", installation.home / "mcp.json")
    offered = "from blocks b join toolsets s on s.id = b.toolset_id where b.trace_id = :trace"
    [[trace]] = installation.sql("select trace_id from requests where id = :id", id=made["id"])
    installation.until(f"select exists (select {offered})", trace=trace)
    installation.cli("request", "cancel", str(made["id"]))
    [[body, tools]] = installation.sql(f"select b.body, s.tools {offered}", trace=trace)
    names = [schema["function"]["name"] for schema in json.loads(tools)]
    assert {"finish", "mcp__web__add"} < set(names)
    assert "The MCP server own can't be used: the MCP server own has ended with exit code 2" in body


def test_the_toolsmith_calls_a_tool(installation: Installation, web: Web) -> None:
    before, script = web.calls, [call("mcp__web__add", first=1), call("finish", success=True, result="It is 3.")]
    options = ("-o", json.dumps(script), "--mcp", installation.home / "mcp.json")
    made = installation.json("request", "create", *options)
    query = "select t.job_id, t.id from requests r join traces t on t.id = r.trace_id where r.id = :id"
    [[job, trace]] = installation.sql(query, id=made["id"])
    installation.wait(job)
    assert answers(installation, job) == [{"success": True, "output": "3"}]
    assert web.calls == before + 1
    [[returned]] = installation.sql("select returned from traces where id = :trace", trace=trace)
    assert (returned["success"], returned["result"]) == (True, "It is 3.")


def test_the_secret_is_nowhere_in_the_database_and_the_audit_is_clean(installation: Installation) -> None:
    tables = [name for [name] in installation.sql("select tablename from pg_tables where schemaname = 'public'")]
    assert "exchanges" in tables
    for table in tables:
        query = f'select count(*) from "{table}" x where x::text like :secret'
        assert installation.sql(query, secret=f"%{SECRET}%") == [(0,)], table
    done = installation.cli("audit")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[1]", "Expected `object`, got `array`; the form is"),
        ("{", "Input data was truncated; the form is"),
        ('{"mcpServers": {}}', "names no server"),
        ('{"mcpServers": {"a b": {"command": "x"}}}', "the server 'a b' needs a name of at most"),
        ('{"mcpServers": {"a": {}}}', "the server 'a' must have a command (stdio) or a url"),
        ('{"mcpServers": {"a": {"command": "x", "url": "http://b"}}}', "must have a command (stdio) or a url"),
        ('{"mcpServers": {"a": {"type": "sse", "url": "http://b"}}}', "other transports are not supported"),
        ('{"mcpServers": {"a": {"url": "ftp://b"}}}', "begins neither with http:// nor with https://"),
        ('{"mcpServers": {"a": {"url": "http://b", "headers": {"A": "${NO_SUCH}"}}}}', "needs $NO_SUCH: set it"),
        ('{"mcpServers": {"a": {"url": "http://b", "headers": {"Authorization": "Bearer x"}}}}', "has a secret"),
        ('{"mcpServers": {"a": {"command": "x", "env": {"A": "${DATABASE_URL}"}}}}', "only weavegen itself may read"),
        ('{"mcpServers": {"a": {"command": "x", "env": {"API_KEY": "abc"}}}}', "write ${NAME} for a variable"),
        ('{"mcpServers": {"a": {"command": "x\\u0000"}}}', "can't be stored"),
    ],
)
def test_a_bad_file_is_refused_in_one_line(installation: Installation, text: str, complaint: str) -> None:
    (installation.home / "bad.json").write_text(text)
    before = installation.sql("select count(*) from jobs")
    done = installation.cli("enqueue", "--agent", "react", "--task", "a", "--mcp", installation.home / "bad.json")
    assert (done.returncode, done.stdout) == (2, "")
    assert complaint in done.stderr
    assert len(done.stderr.strip().split("\n")) == 1
    assert installation.sql("select count(*) from jobs") == before


def test_agents_that_take_no_tools_refuse_them(installation: Installation) -> None:
    done = installation.cli("enqueue", "--agent", "research", "--task", "a", "--mcp", installation.home / "mcp.json")
    assert (done.returncode, "give --agent, one of weave, react, toolsmith" in done.stderr) == (2, True)


WATCHES = '''"""Watch, and never return."""

def action_start(self):
    self.seen = [mcp__own__echo(text="a"), mcp__web__add(first=1)]
    self.add_observation_view("Seen", seen)
    return self.seen

def seen(self):
    time.sleep(2)
    return f"{self.seen}, {mcp__own__count()}"

self.add_action("Start", action_start)
'''


def test_blocks_call_functions_and_a_rebuilt_process_asks_no_server_again(
    own_installation: Installation, installation: Installation, web: Web, tmp_path: Path
) -> None:
    weave, home, before = own_installation, installation.home, web.calls
    (tmp_path / "watches.py").write_text(WATCHES)
    (tmp_path / "mcp.json").write_text((home / "mcp.json").read_text().replace("${MCP_KEY}", "-"))
    options = ("--mcp", tmp_path / "mcp.json", "--files", home / "files", "--ticks", "1")
    job = int(weave.json("enqueue", tmp_path / "watches.py", *options)["job"])
    weave.until("select count(*) = 1 from steps where request ->> 'op' = 'bootstrap' and status = 'done'")
    [[pid]] = weave.sql("select pid from environments where closed_at is null")
    os.kill(pid, signal.SIGKILL)
    weave.wait(job)
    rebuilt = weave.sql("select detail from events where kind = 'environment rebuilt'")
    assert rebuilt
    assert all("all came out as before" in detail for [detail] in rebuilt), rebuilt
    assert web.calls == before + 1
    blocks = weave.sql(
        "select b.type, b.body, s.tools from blocks b left join toolsets s on s.id = b.toolset_id order by index"
    )
    assert '\n# {"name": "mcp__web__add", "description": "Add two numbers.", "parameters": {"type"' in blocks[0][1]
    assert "mcp__own__echo" in blocks[0][2]
    assert "['a', '3'], 2" in next(body for kind, body, _ in blocks if kind == "observation")
    done = weave.cli("audit")
    assert done.returncode == 0, done.stdout
