"""The package `harbor` runs trials in weavegen's boxes."""

import itertools
import json
import os
import subprocess
from pathlib import Path
from typing import Any

from simulation.process import Process
from tests.harbor.world import FILES, TOML, World, write_task
from tests.support import ROOT

HARBOR = ROOT / ".venv-harbor-peer" / "bin" / "harbor"
"""`scripts/harbor.sh install` makes it."""


def harbor_run(world: World, folder: Path, agent: str, *options: str, **variables: str) -> dict[str, dict[str, Any]]:
    """Run all tasks of a folder. Returns the result of each trial by task."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "WEAVEGEN_HOME": str(world.config.home), "HARBOR_TELEMETRY": "0"}
    environ |= variables
    command = [
        str(HARBOR),
        "run",
        "--path",
        str(folder),
        "--env",
        "weavegen.harbor:BubblewrapEnvironment",
        "--agent",
        agent,
    ]
    jobs = folder.parent / f"jobs-{folder.name}"
    done = subprocess.run(
        [*command, "--jobs-dir", str(jobs), "--yes", "--n-concurrent", "2", *options],
        env=environ,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    results = [json.loads(path.read_text()) for path in jobs.glob("*/*/result.json")]
    assert not list(world.config.workspaces.glob("harbor-*"))
    return {result["task_name"].rpartition("/")[2]: result for result in results}


def rewards(results: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {
        name: result["verifier_result"] and result["verifier_result"]["rewards"] for name, result in results.items()
    }


def test_rewards_of_oracle_and_nop(world: World, tmp_path: Path) -> None:
    write_task(tmp_path / "tasks" / "one")
    write_task(tmp_path / "tasks" / "two", {"environment/Dockerfile": FILES["environment/Dockerfile"] + "RUN true\n"})
    assert rewards(harbor_run(world, tmp_path / "tasks", "oracle")) == {"one": {"reward": 1}, "two": {"reward": 1}}
    (tmp_path / "tasks").rename(tmp_path / "again")
    assert rewards(harbor_run(world, tmp_path / "again", "nop")) == {"one": {"reward": 0}, "two": {"reward": 0}}


def test_everything_that_an_agent_can_ask_for(world: World, tmp_path: Path) -> None:
    write_task(tmp_path / "tasks" / "probed", {"task.toml": TOML + 'network_mode = "no-network"\n'})
    result = harbor_run(world, tmp_path / "tasks", "tests.harbor.probe_agent:Probe")["probed"]
    assert result["exception_info"] is None
    assert result["agent_result"]["metadata"] == {"checked": True}
    assert result["verifier_result"]["rewards"] == {"reward": 1}


def test_a_build_that_fails_names_its_reason(world: World, tmp_path: Path) -> None:
    write_task(tmp_path / "tasks" / "broken", {"environment/Dockerfile": "FROM weavegen.test/debian:12\nRUN false\n"})
    result = harbor_run(world, tmp_path / "tasks", "oracle")["broken"]
    assert "RUN false" in result["exception_info"]["exception_message"]


def test_turns_of_our_agent_have_exact_tokens(world: World, tmp_path: Path) -> None:
    """With the simulated model."""
    write_task(tmp_path / "tasks" / "chore")
    server = Process(tmp_path, "sim", "--port", "0", "--seed", "3")
    try:
        results = harbor_run(
            world,
            tmp_path / "tasks",
            "weavegen.harbor:ReactAgent",
            "--model",
            "weavegen-sim",
            OPENAI_BASE_URL=server.url,
        )
    finally:
        server.kill()
    assert results["chore"]["exception_info"] is None
    agent = results["chore"]["agent_result"]
    [rollout] = agent["rollout_details"]
    turns = list(
        zip(*(rollout[name] for name in ("prompt_token_ids", "completion_token_ids", "logprobs")), strict=True)
    )
    assert len(turns) > 2
    for (prompt, written, logprobs), (following, _, _) in itertools.pairwise(turns):
        assert len(written) == len(logprobs)
        assert following[: len(prompt) + len(written) - 1] == prompt + written[:-1]  # perhaps without the stop token
    assert agent["n_output_tokens"] == sum(len(written) for _, written, _ in turns)
