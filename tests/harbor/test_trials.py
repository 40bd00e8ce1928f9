"""Exports of Harbor tasks and of weave traces, read by Harbor's own models in its own virtual environment."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.harbor.world import BASE, STEPS, TOML, write_task
from tests.support import ROOT, TICTACTOE
from tests.support.bootstraps import CALLING
from tests.support.installation import Installation, installed

PYTHON = ROOT / os.environ.get("HARBOR_VENV", ".venv-harbor-peer") / "bin" / "python"
"""`bash scripts/harbor.sh install` makes it."""
Json = dict[str, Any]


@pytest.fixture(scope="module")
def corpus(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """Harbor tasks by four agents, one of several steps, one whose tests give no reward, one without an image; a game,
    a conversation with tools, and a trace with a subagent.
    """
    tasks = tmp_path_factory.mktemp("tasks")
    place, several = write_task(tasks / "sum"), write_task(tasks / "steps", files=STEPS)
    silent = write_task(tasks / "silent", {"tests/test.sh": "#!/bin/bash\necho nothing to say\n"})
    broken = write_task(tasks / "broken", {"environment/Dockerfile": f"FROM {BASE}\nRUN exit 3\n"})
    calling = tasks / "calling.py"
    calling.write_text(CALLING)
    with installed("--model", "sim") as found:
        added = found.cli("images", "add", BASE, base)
        assert added.returncode == 0, added.stderr
        all_tokens = ("--set", "tokens=all")
        for options in (
            *(("--harbor", place, "--agent", agent) for agent in ("nop", "oracle")),
            *(("--harbor", place, "--agent", agent, "--ticks", "2", *all_tokens) for agent in ("react", "weave")),
            ("--harbor", several, "--agent", "oracle"),
            *(("--harbor", task, "--agent", "nop") for task in (silent, broken)),
            (TICTACTOE, "--agent", "react", "--seed", "3"),
            (TICTACTOE, "--ticks", "2"),
            (calling, "-p", "long=false", "--seed", "3", "--ticks", "2"),
        ):
            found.wait(int(found.json("enqueue", *options)["job"]))
        yield found


def read_by_harbor(folder: Path) -> list[Json]:
    command = [str(PYTHON), str(ROOT / "tests" / "harbor" / "read_trials.py"), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found: list[Json] = json.loads(done.stdout)
    return found


def test_harbor_reads_the_folder_of_each_trial(corpus: Installation, tmp_path: Path) -> None:
    written = corpus.json("export", "--format", "harbor", "--out", tmp_path / "out")
    trials = read_by_harbor(tmp_path / "out")
    assert len(trials) == sum(written["rows"].values()) == 7
    found = {(trial["task"], trial["agent"].removeprefix("weavegen-")): trial for trial in trials}
    assert {key: trial["rewards"] for key, trial in found.items()} == {
        ("sum", "nop"): {"reward": 0.0},
        ("sum", "oracle"): {"reward": 1.0},
        ("sum", "react"): {"reward": 0.0},
        ("sum", "weave"): {"reward": 0.0},
        ("steps", "oracle"): {"reward": 1.0},
        ("silent", "nop"): None,
        ("broken", "nop"): None,
    }
    for (task, _), trial in found.items():
        assert trial["seconds"] > 0
        if task == "sum":
            assert (trial["reward_file"], trial["stdout"], trial["exception"]) == (trial["rewards"], True, None)
    assert found["steps", "oracle"]["steps"] == [["one", {"reward": 1.0}], ["two", {"reward": 1.0}]]
    assert (found["silent", "nop"]["exception"], found["silent", "nop"]["reward_file"]) == ("not_evaluated", None)
    assert found["broken", "nop"]["exception"] == "environment"
    assert found["sum", "weave"]["tools"] == ["action", "evaluation", "observation-inference"]
    assert "python" in found["sum", "react"]["tools"]
    assert found["sum", "react"]["tokens"] > 0
    steps = sorted(path.name for path in (tmp_path / "out").rglob("steps/*/verifier/test-stdout.txt"))
    assert len(steps) == 2


def test_what_lost_is_beside_the_trajectory(corpus: Installation, tmp_path: Path) -> None:
    corpus.json("export", "--format", "harbor", "--out", tmp_path / "out")
    [[trace]] = corpus.sql(
        "select t.id from traces t join jobs j on j.id = t.job_id where agent = 'weave' and harbor_task_id is not null"
    )
    lines = (tmp_path / "out" / "train" / f"sum__{trace}" / "agent" / "candidates.jsonl").read_text().splitlines()
    candidates = [json.loads(line) for line in lines]
    recorded = corpus.sql(
        "select candidate_id, text, value, block_id is not null from candidate_values where trace_id = :t order by 1",
        t=trace,
    )
    assert [(one["candidate_id"], one["text"], one.get("value"), one["selected"]) for one in candidates] == recorded
    assert {one["selected"] for one in candidates} == {True, False}
    assert all(len(one["token_ids"]) == len(one["logprobs"]) == one["tokens"] for one in candidates)


@pytest.mark.parametrize("mode", ["public", "no-network"])
def test_the_hosts_network_where_both_the_job_and_the_task_allow_it(
    corpus: Installation, tmp_path: Path, mode: str
) -> None:
    task = write_task(tmp_path / mode, {"task.toml": TOML + f'network_mode = "{mode}"\n'})
    job = corpus.json("enqueue", "--harbor", task, "--agent", "weave", "--network", "host", "--ticks", "40")["job"]
    query = "select {} from environments e join traces t on t.id = e.trace_id where t.job_id = :job"
    corpus.until(query.format("count(*) > 0"), job=job)
    [[pid]] = corpus.sql(query.format("pid"), job=job)
    box = psutil.Process(pid)
    networks = {os.readlink(f"/proc/{one.pid}/ns/net") for one in (box, *box.children(recursive=True))}
    assert (os.readlink("/proc/self/ns/net") in networks) == (mode == "public")
    corpus.cli("cancel", str(job))
    [[history]] = corpus.sql(
        "select detail from events e join traces t on t.id = e.trace_id where t.job_id = :job and kind = 'started'",
        job=job,
    )
    assert history == ("on the host's network" if mode == "public" else None)


def test_harbor_reads_trajectories_of_all_agents(corpus: Installation, tmp_path: Path) -> None:
    corpus.json("export", "--format", "atif", "--out", tmp_path / "out", "--where", "job not in ('sum', 'steps')")
    found = read_by_harbor(tmp_path / "out")
    [[traces]] = corpus.sql("select count(*) from text_examples where job not in ('sum', 'steps')")
    assert len(found) == traces > 3
    talk = next(one for one in found if "python" in one["tools"])
    assert "python" in talk["calls"]
    assert talk["answered"] > 0
    game = next(one for one in found if "action" in one["calls"])
    assert game["answered"] > 0


def test_sessions_have_the_messages_of_the_trajectory(corpus: Installation, tmp_path: Path) -> None:
    written = corpus.json("export", "--format", "sessions", "--out", tmp_path / "out")
    files = sorted((tmp_path / "out" / "train").glob("*.jsonl"))
    assert len(files) == sum(written["rows"].values())
    roles, reasoned = set(), 0
    for file in files:
        header, *lines = [json.loads(line) for line in file.read_text().splitlines()]
        assert (header["type"], header["harness"], f"weavegen-{file.stem}") == ("session", "weavegen", header["id"])
        assert lines
        called: set[str] = set()
        for line in lines:
            assert set(line) == {"type", "message"}
            assert line["type"] == "message"
            message = line["message"]
            fields = {"role", "content", "reasoningContent", "toolCalls", "toolCallId", "timestamp", "model"}
            assert {"role", "content"} <= set(message) <= fields
            assert message["timestamp"] > 1.7e12
            roles.add(message["role"])
            reasoned += "reasoningContent" in message
            for call in message.get("toolCalls", ()):
                assert set(call) == {"id", "function"}
                assert isinstance(json.loads(call["function"]["arguments"]), dict)
                called.add(call["id"])
            assert message.get("toolCallId") is None or message["toolCallId"] in called
    assert roles == {"system", "user", "assistant", "tool"}
    assert reasoned
    assert "  - split: train\n    path: train/**\n" in (tmp_path / "out" / "README.md").read_text()
