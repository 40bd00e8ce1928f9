"""MCP servers in real boxes, and over HTTP: what the model reads when they misbehave."""

import itertools
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import ROOT
from tests.support.ports import free_port
from weavegen import config as configuration
from weavegen.box.mcp import MAX_BYTES, answer_text, named
from weavegen.engine import mcp_http
from weavegen.errors import Unserved
from weavegen.kernel.mcp import McpServer
from weavegen.kernel.steps import Execute
from weavegen.sandbox.client_session import ToolRequest
from weavegen.sandbox.environment import Environment
from weavegen.sandbox.providers import Limits

SERVER: dict[str, Any] = {"command": "python3", "args": ["/app/server.py"], "env": {"COLOUR": "green"}}
numbers = itertools.count(1)
Start = Callable[[dict[str, Any]], Environment]


@pytest.fixture(scope="module")
def start() -> Iterator[Start]:
    with tempfile.TemporaryDirectory(prefix="weavegen-test-") as home:
        Path(home).chmod(0o711)
        files = Path(home) / "files"
        files.mkdir(mode=0o755)
        shutil.copy(ROOT / "tests" / "support" / "mcp_stdio.py", files / "server.py")
        config = configuration.load({"WEAVEGEN_HOME": home})
        started: list[Environment] = []

        def start(servers: dict[str, Any]) -> Environment:
            environment = Environment.start(config, next(numbers), files=files, mcp_servers=servers)
            started.append(environment)
            return environment

        yield start
        for environment in started:
            environment.stop(keep_workspace=False)


@pytest.fixture(scope="module")
def box(start: Start) -> Environment:
    return start({"own": SERVER})


def tools(environment: Environment, known: dict[str, Any] | None = None) -> dict[str, Any]:
    executed = environment.execute(next(numbers), Execute(op="tools", source=json.dumps(known or {})))
    assert executed.error is None
    return dict(executed.value)


def call(environment: Environment, tool: str, **arguments: Any) -> Any:
    source = json.dumps({"server": "own", "name": tool, "arguments": arguments})
    step = Execute(op="tool", source=source)
    executed = environment.execute(next(numbers), step, limits=Limits(seconds=10.0, grace=2.0))
    assert executed.error is None
    return executed.value


def test_the_tools_of_all_pages_are_listed_with_their_schemas(box: Environment) -> None:
    listed = json.loads(tools(box)["own"]["tools"])
    assert [tool["name"] for tool in listed][:3] == ["echo", "count", "sleep"]
    assert listed[0] == {
        "name": "echo",
        "description": "Does echo.",
        "parameters": {
            "type": "object",
            "properties": {"text": {"type": "string", "description": "What to say."}},
            "required": ["text"],
        },
    }


def test_a_call_gives_the_text_of_the_answer(box: Environment) -> None:
    assert call(box, "echo", text="hallo ✓") == {"success": True, "output": "hallo ✓"}
    assert call(box, "env", text="COLOUR")["output"] == "green"


@pytest.mark.parametrize(
    ("tool", "arguments", "answer"),
    [
        ("fail", {"text": "today"}, {"success": False, "error": "no: today"}),
        ("unknown", {}, {"success": False, "error": "unknown tool unknown"}),
        ("picture", {}, {"success": True, "output": "look\n(image, image/png, 300 bytes: left out)"}),
        ("noise", {}, {"success": True, "output": "None"}),
    ],
)
def test_answers_that_are_no_text(box: Environment, tool: str, arguments: dict[str, Any], answer: Any) -> None:
    assert call(box, tool, **arguments) == answer


def test_a_long_answer_is_cut(box: Environment) -> None:
    output = call(box, "big", text="1000000")["output"]
    assert len(output) < 17_000
    assert "characters left out" in output


def test_after_a_late_answer_the_server_goes_on(box: Environment) -> None:
    before = int(call(box, "count")["output"])
    step = Execute(op="tool", source=json.dumps({"server": "own", "name": "sleep", "arguments": {"seconds": 2}}))
    executed = box.execute(next(numbers), step, limits=Limits(seconds=1.0, grace=2.0))
    assert executed.value == {
        "success": False,
        "error": "the MCP server own did not answer in time; the call may have had effects, and is not repeated",
    }
    time.sleep(2)
    assert int(call(box, "count")["output"]) == before + 2


@pytest.mark.parametrize(("tool", "text"), [("die", "now"), ("big", str(MAX_BYTES))])
def test_a_server_that_ends_is_reported_and_started_again(box: Environment, tool: str, text: str) -> None:
    answer = call(box, tool, text=text)
    assert answer["success"] is False
    assert answer["error"].endswith("; the call may have had effects, and is not repeated")
    reason = "has ended with exit code 3: last words" if tool == "die" else "sent a message of more than 8 MB"
    assert answer["error"].startswith(f"the MCP server own {reason}")
    assert call(box, "count")["output"] == "1"


@pytest.mark.parametrize(
    ("server", "reason"),
    [
        ({"command": "no-such-program", "args": [], "env": {}}, "can't be started: [Errno 2] No such file"),
        ({"command": "false", "args": [], "env": {}}, "has ended with exit code 1"),
        ({"command": "sh", "args": ["-c", "echo oh no >&2; exit 7"], "env": {}}, "has ended with exit code 7: oh no"),
        ({"command": "sh", "args": ["-c", 'echo \'{"id": 1, "result": 5}\'; cat'], "env": {}}, "can't be started"),
        ({"command": "sh", "args": ["-c", 'echo \'{"id": 1, "error": "x"}\'; cat'], "env": {}}, "x"),
    ],
)
def test_a_server_that_does_not_start_is_one_line(start: Start, server: dict[str, Any], reason: str) -> None:
    environment = start({"bad": server, "own": SERVER})
    listed = tools(environment)
    assert "echo" in listed["own"]["tools"]
    assert reason in listed["bad"]["error"]
    assert "\n" not in listed["bad"]["error"]


def test_blocks_call_functions_and_others_go_to_the_worker_once(start: Start) -> None:
    asked: list[ToolRequest] = []

    def answer(request: ToolRequest) -> dict[str, Any]:
        asked.append(request)
        return {"values": "from outside"} if request.tool == "look" else {"error": "broken"}

    environment = start({"own": SERVER, "web": None})
    known = {"web": {"tools": json.dumps([{"name": "look", "parameters": {}}, {"name": "no-way", "parameters": {}}])}}
    assert set(tools(environment, known)) == {"own", "web"}
    source = """
def action_a(self):
    found = [mcp__own__echo(text="a"), mcp__web__look(at={"x": 1})]
    try:
        mcp__web__no_way()
    except RuntimeError as error:
        found.append(str(error))
    return found

self.add_action("A", action_a)
"""
    step, number = Execute(op="bootstrap", source=source), next(numbers)
    executed = environment.execute(number, step, tool=answer)
    assert (executed.error, executed.value) == (None, ["a", "from outside", "broken"])
    assert [(one.turn, one.server, one.tool, json.loads(one.arguments)) for one in asked] == [
        (1, "web", "look", {"at": {"x": 1}}),
        (2, "web", "no-way", {}),
    ]
    assert environment.execute(number, step, tool=answer) == executed
    assert len(asked) == 2


def test_names_are_legal_names_of_functions_and_differ() -> None:
    long = "x" * 80
    tool = [{"name": name} for name in ("a.b", "a-b", long, f"{long}y", "ü")]
    names = named({"my.server": {"tools": json.dumps(tool)}, "broken": {"error": "no"}})
    assert len(names) == 5
    assert all(name.isidentifier() and len(name) <= 64 for name in names)
    assert [found for _, found in names.values()] == tool


def test_content_of_every_kind_becomes_text() -> None:
    resource = {"type": "resource", "resource": {"uri": "a:b", "text": "inside"}}
    blob = {"type": "resource", "resource": {"uri": "a:b", "mimeType": "x/y", "blob": "AAAA"}}
    link = {"type": "resource_link", "uri": "file:///a"}
    text = answer_text({"content": [resource, blob, link, "nonsense"], "structuredContent": {"a": 1}})
    assert text == "inside\n(resource, x/y, 3 bytes: left out)\n(a link to file:///a)"
    assert answer_text({"content": [], "structuredContent": {"ä": 1}}) == '{"ä": 1}'


# ------------------------------------------------------------------------------------------ over HTTP


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    port, folder = free_port(), tmp_path_factory.mktemp("mcp")
    process = subprocess.Popen([sys.executable, "-m", "tests.support.mcp_http", str(port), folder / "calls"], cwd=ROOT)
    server = McpServer(url=f"http://127.0.0.1:{port}/mcp")
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            mcp_http.list_tools("web", server, 5.0, 10**6)
            break
        except Unserved:
            time.sleep(0.1)
    yield str(server.url)
    process.kill()
    process.wait()


def ask(url: str, tool: str, limit: float = 10.0, **arguments: Any) -> dict[str, Any]:
    return mcp_http.call("web", McpServer(url=url, headers={"X-Key": "${MCP_TEST_KEY}"}), tool, arguments, limit)


def test_tools_over_http_are_listed_and_called(url: str) -> None:
    listed = json.loads(mcp_http.list_tools("web", McpServer(url=url), 10.0, 10**6)["tools"])
    assert listed[0]["name"] == "add"
    assert list(listed[0]["parameters"]["properties"]) == ["first", "second"]
    assert ask(url, "add", first=1, second=2) == {"values": "3"}
    assert "there is room for 10" in mcp_http.list_tools("web", McpServer(url=url), 10.0, 10)["error"]


def test_failures_over_http_are_one_line_each(url: str) -> None:
    assert ask(url, "fail") == {"error": "Error executing tool fail"}
    late = ask(url, "sleep", 1.0, seconds=30)["error"]
    assert "gave no answer" in late
    assert late.endswith("; the call may have had effects, and is not repeated")
    assert "it sent more than 8 MB; the call may have had" in ask(url, "big", n=MAX_BYTES + 1)["error"]
    assert ask(url, "picture")["values"].startswith("(image, image/png, ")
    assert ask(f"{url}/nowhere", "add")["error"].endswith("Not Found; nothing was sent")
    nobody = ask(f"http://127.0.0.1:{free_port()}/mcp", "add")
    assert nobody["unreachable"] is True
    assert nobody["error"].endswith("; nothing was sent")
    with pytest.raises(Unserved, match="nothing was sent"):
        mcp_http.list_tools("web", McpServer(url=f"http://127.0.0.1:{free_port()}/mcp"), 5.0, 10**6)


def test_an_answer_is_kept_although_it_breaks_its_declared_schema(url: str) -> None:
    assert ask(url, "promises") == {"values": "12 degrees"}


def test_a_secret_reaches_the_server_and_does_not_come_back(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_TEST_KEY", "a-long-secret")
    assert ask(url, "headers") == {"values": "${MCP_TEST_KEY}"}
