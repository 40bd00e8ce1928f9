"""Conversing agents in a whole installation: many at once, in parallel, called by others, shown and exported."""

import ast
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from simulation import tokenizer
from tests.support import ROOT, TICTACTOE
from tests.support.installation import Installation
from tests.support.rendering import render_trace
from weavegen.trace.render import parse_trace

ASKS = ROOT / "tests" / "bootstraps" / "asks_researchers.py"


@pytest.fixture(scope="module")
def installation(own_installation: Installation) -> Installation:
    return own_installation


@pytest.fixture(scope="module")
def games(installation: Installation) -> int:
    rows = installation.json("run", "--agent", "react", TICTACTOE, "-n", "6", "--seed", "3")
    assert {row["status"] for row in rows} == {"ended"}
    assert {row["result"] for row in rows} <= {"success", "no success"}
    [[number]] = installation.sql("select max(id) from jobs")
    return int(number)


def test_fifty_tasks_run_at_once(installation: Installation) -> None:
    rows = installation.json("run", "--agent", "react", "--task", "Write a list.", "-n", "50", "--seed", "5")
    assert len(rows) == 50
    assert {(row["status"], row["result"]) for row in rows} == {("ended", "success")}


def test_a_game_is_played_with_tools_and_its_evaluations_decide(installation: Installation, games: int) -> None:
    query = "select success, error, replies, final_response from conversations where job_id = :j"
    rows = installation.sql(query, j=games)
    assert len(rows) == 6
    for success, error, replies, response in rows:
        assert error is None
        assert replies >= 4
        assert success == ("won" in response)


def test_a_conversation_is_shown_as_one_python_file(installation: Installation, games: int) -> None:
    for [trace] in installation.sql("select id from traces where job_id = :j", j=games):
        text = installation.cli("show", str(trace)).stdout
        ast.parse(text)
        assert render_trace(parse_trace(text)) == text
        types = [block["type"] for block in installation.json("show", str(trace))]
        assert types[:3] == ["bootstrap", "system", "user"]
        assert types[-1] == "outcome"


def test_a_trajectory_is_what_was_read_and_sampled_token_for_token(
    installation: Installation, games: int, tmp_path: Path
) -> None:
    done = installation.cli(
        "export", "--format", "trajectories", "--out", tmp_path / "out", "--where", f"job_id = {games}"
    )
    assert done.returncode == 0, done.stderr
    [file] = (tmp_path / "out").rglob("*.parquet")
    rows = pq.read_table(file).to_pylist()
    assert len(rows) == 6
    for row in rows:
        tokens, masks, logprobs = row["tokens"], row["masks"], row["logprobs"]
        assert len(tokens) == len(masks) == len(logprobs)
        read = "".join(f"<|im_start|>{one['role']}\n{one['content']}<|im_end|>\n" for one in row["messages"])
        assert "<s>" + read.removesuffix("\n") == tokenizer.decode(tokens)
        assert all((mask == -100) == (logprob == 1.0) for mask, logprob in zip(masks, logprobs, strict=True))
        assert all(mask in (-100, token) for mask, token in zip(masks, tokens, strict=True))
        written = tokenizer.decode([mask for mask in masks if mask != -100])
        replies = [one["content"] for one in row["messages"] if one["role"] == "assistant"]
        assert written == "".join(f"{reply}<|im_end|>" for reply in replies)
        assert row["score"] == float(row["success"])


def test_messages_that_a_task_gives_are_steps_of_the_agent(installation: Installation, tmp_path: Path) -> None:
    call = '<tool_call>{"name": "terminal", "arguments": {"command": "ls"}}</tool_call>'
    messages = [
        {"role": "user", "content": "List the files."},
        {"role": "assistant", "content": f"<think>I look.</think>\n{call}"},
        {"role": "tool", "content": '<tool_response>{"success": true, "output": "a"}</tool_response>'},
    ]
    (tmp_path / "task.json").write_text(json.dumps({"task": "Count the files.", "messages": messages}))
    [row] = installation.json("run", "--agent", "react", tmp_path / "task.json", "--seed", "3")
    out = tmp_path / "out"
    installation.json("export", "--format", "atif", "--out", out, "--where", f"trace_id = {row['id']}")
    _, _, given, _, *own = json.loads((out / "train" / f"trace-{row['id']}.json").read_text())["steps"]
    assert (given["source"], given["is_copied_context"], given["reasoning_content"]) == ("agent", True, "I look.")
    assert given["tool_calls"][0]["arguments"] == {"command": "ls"}
    assert given["observation"]["results"][0]["content"] == '{"success": true, "output": "a"}'
    assert "metrics" not in given
    assert {"is_copied_context" in step for step in own if step["source"] == "agent"} == {False}


def test_messages_of_the_user_in_a_row_are_one_in_exports(installation: Installation, tmp_path: Path) -> None:
    """Strict chat templates refuse more. A researcher without iterations left reads an answer and then a request."""
    given = ("--task", "What are tokens kept for?", "--documents", ROOT / "docs", "--set", "steps=1", "--seed", "1")
    [row] = installation.json("run", "--agent", "research", *given)
    query = "select body from blocks where trace_id = :t and type in ('user', 'tool') order by index"
    task, answer, request = [body for [body] in installation.sql(query, t=row["id"])]
    for format in ("messages", "trajectories"):
        out = tmp_path / format
        installation.json("export", "--format", format, "--out", out, "--where", f"trace_id = {row['id']}")
        [file] = out.rglob("*.parquet")
        [found] = pq.read_table(file).to_pylist()
        assert [one["role"] for one in found["messages"]] == ["system", *["user", "assistant"] * 2]
        assert [one["content"] for one in found["messages"][1::2]] == [task, f"{answer}\n\n{request}"]


def test_only_conversations_about_the_same_task_are_in_a_group(installation: Installation, tmp_path: Path) -> None:
    """Tasks that begin with the same words have one name, and so has a file whatever its parameters are."""
    shared = "You are a helpful assistant. Write a list of the things that I name: "
    given: list[dict[str, Any]] = [{"task": shared + "fruits", "n": 2}, {"task": shared + "colours", "n": 2}]
    given += [{"bootstrap": str(TICTACTOE), "params": {"opponent": one}, "n": 2} for one in ("basic", "random")]
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in given))
    installation.json("run", "--agent", "react", "--from", tmp_path / "rows.jsonl", "--seed", "4")
    [[job]] = installation.sql("select max(id) from jobs")
    out = tmp_path / "out"
    installation.json("export", "--format", "trajectories", "--out", out, "--where", f"job_id = {job}")
    [file] = out.rglob("*.parquet")
    table = pq.read_table(file, columns=["group", "bootstrap"])
    assert len(set(table["bootstrap"].to_pylist())) == 2
    assert sorted(Counter(table["group"].to_pylist()).values()) == [2, 2, 2, 2]


def test_the_same_seed_gives_the_same_conversation(installation: Installation) -> None:
    for _ in range(2):
        installation.json("run", "--agent", "react", "--task", "Count something.", "-n", "2", "--seed", "9")
    traces = installation.sql(
        """
        select number, count(distinct bodies) from (
          select t.number, string_agg(b.body, '' order by b.index) as bodies from traces t
          join blocks b on b.trace_id = t.id where t.job_id in (select id from jobs order by id desc limit 2)
          group by t.id
        ) x group by number
        """
    )
    assert traces == [(1, 1), (2, 1)]


def test_an_action_asks_researchers_and_reads_only_their_summaries(installation: Installation) -> None:
    rows = installation.json("run", ASKS, "-n", "3", "--ticks", "2", "--documents", ROOT / "docs")
    assert {row["status"] for row in rows} == {"ended"}
    asked = installation.sql(
        """
        select c.trace_id, c.trace_status, c.final_response, c.called_by_trace, j.name, p.job_id, j.called_by
        from conversations c join jobs j on j.id = c.job_id join traces p on p.id = c.called_by_trace
        """
    )
    assert len(asked) == 6
    for trace, status, summary, caller, name, job, called_by in asked:
        assert (status, name, called_by) == ("ended", "asks_researchers.py: research", job)
        text = installation.cli("show", str(caller)).stdout
        assert summary.split("\n")[0][:60] in text
        reading = [block["body"] for block in installation.json("show", str(trace)) if block["type"] == "tool"]
        assert reading
        assert not any(line in text for body in reading for line in body.split("\n") if len(line) > 80)
    types = [block["type"] for block in installation.json("show", str(asked[0][3]))]
    assert types[:3] == ["genesis", "bootstrap", "return"]


SEARCH = json.loads((ROOT / "bootstraps" / "tasks" / "cap_set.json").read_text())
TASKS = {
    "research": {"task": "What are tokens kept for?"},
    "funsearch": SEARCH | {"generations": 2, "candidates": 2, "islands": 2},
    "toolsmith": {"task": "Say how many vowels the word weaving has."},
}
FORMATS = ("text", "sft", "messages", "trajectories", "atif", "py")


@pytest.mark.parametrize("agent", TASKS)
def test_every_agent_is_shown_and_exported_like_any_other(
    installation: Installation, tmp_path: Path, agent: str
) -> None:
    task = tmp_path / "task.json"
    task.write_text(json.dumps(TASKS[agent]))
    rows = installation.json("run", "--agent", agent, task, "-n", "2", "--seed", "1", "--documents", ROOT / "docs")
    assert {row["status"] for row in rows} == {"ended"}
    [[job]] = installation.sql("select max(id) from jobs where agent = :agent and called_by is null", agent=agent)
    assert str(job) in installation.cli("status").stdout
    for row in rows:
        text = installation.cli("show", str(row["id"])).stdout
        ast.parse(text)
        assert render_trace(parse_trace(text)) == text
    assert installation.sql("select count(*) from conversations where job_id = :job", job=job) == [(2,)]
    for name in FORMATS:
        out = tmp_path / name
        done = installation.cli("export", "--format", name, "--out", out, "--where", f"job_id = {job}")
        assert done.returncode == 0, done.stderr
        assert "rows of 2 traces" in done.stdout or len(list(out.rglob("trace-*"))) == 2, done.stdout


def test_a_conversation_is_forked_and_continues(installation: Installation, games: int) -> None:
    [[trace]] = installation.sql("select min(id) from traces where job_id = :job", job=games)
    done = installation.json("fork", str(trace), "--at", "5", "-n", "2")
    installation.wait(int(done["job"]))
    query = "select trace_status, fork_at, retry_of from conversations where fork_of = :trace"
    assert installation.sql(query, trace=trace) == [("ended", 5, None)] * 2


def test_the_audit_finds_nothing_in_their_traces(installation: Installation, games: int) -> None:
    done = installation.cli("audit", "--json")
    assert done.returncode == 0, done.stdout
    assert json.loads(done.stdout)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--agent", "research", TICTACTOE), "is a bootstrap file, and research takes tasks"),
        (("--agent", "weave", "--task", "Do it."), "weave takes bootstrap files, not tasks"),
        (("--agent", "react", "--from", "two.jsonl"), "give a bootstrap or a task: one of them"),
        (("--agent", "react", "bad.json"), "give a JSON object"),
        (("--agent", "react", "other.json"), "is an object: task, [messages], [system], [single], [research]"),
        (("--agent", "react", "--task", "a", "--documents", "nowhere"), "does not exist: give the path of"),
        (("--agent", "react", "--task", "a", "--set", "nobody.x=1"), "writes no blocks of type nobody"),
        (("--agent", "react", "--task", "a", "--set", "research.stps=1"), "delegates: research"),
    ],
)
def test_bad_tasks_are_refused_in_one_line(
    installation: Installation, arguments: tuple[str | Path, ...], complaint: str
) -> None:
    (installation.home / "two.jsonl").write_text('{"task": "a", "bootstrap": "b.py"}\n')
    (installation.home / "bad.json").write_text("[1]")
    (installation.home / "other.json").write_text('{"job": "a"}')
    before = installation.sql("select count(*) from jobs")
    done = installation.cli("enqueue", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert complaint in done.stderr
    assert len(done.stderr.strip().split("\n")) == 1
    assert installation.sql("select count(*) from jobs") == before
