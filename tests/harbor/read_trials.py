"""Reads exported folders with Harbor's own models. Runs in its virtual environment (scripts/harbor.sh).

python read_trials.py FOLDER: prints a JSON list with an object for each trial below the folder, and reads each other
file `trace-*.json` as a trajectory.
"""

import json
import sys
from pathlib import Path
from typing import Any

from harbor.models.trajectories import Trajectory  # type: ignore[import-not-found]
from harbor.models.trial.config import TrialConfig  # type: ignore[import-not-found]
from harbor.models.trial.paths import TrialPaths  # type: ignore[import-not-found]
from harbor.models.trial.result import TrialResult  # type: ignore[import-not-found]


def trial(folder: Path) -> dict[str, Any]:
    """What Harbor reads in a trial's folder. Raises pydantic.ValidationError."""
    paths = TrialPaths(folder)
    config = TrialConfig.model_validate_json(paths.config_path.read_text())
    result = TrialResult.model_validate_json(paths.result_path.read_text())
    assert result.config == config
    assert result.trial_name == config.trial_name == folder.name
    steps = trajectory(paths.agent_dir / "trajectory.json")
    rewards = paths.reward_json_path
    return {
        "task": result.task_name,
        "agent": result.agent_info.name,
        "rewards": result.verifier_result and result.verifier_result.rewards,
        "steps": [
            [step.step_name, step.verifier_result and step.verifier_result.rewards]
            for step in result.step_results or ()
        ],
        "exception": result.exception_info and result.exception_info.exception_type,
        "reward_file": json.loads(rewards.read_text()) if rewards.exists() else None,
        "stdout": paths.test_stdout_path.exists(),
        "seconds": (result.finished_at - result.started_at).total_seconds(),
        "tokens": result.agent_result.n_output_tokens,
        **steps,
    }


def trajectory(path: Path) -> dict[str, Any]:
    """What Harbor reads in a trajectory. Raises pydantic.ValidationError, also for fields that it does not know."""
    read = Trajectory.model_validate_json(path.read_text())
    parts = [read, *(read.subagent_trajectories or ())]
    calls = [call for part in parts for step in part.steps for call in step.tool_calls or ()]
    return {
        "tools": sorted(tool["function"]["name"] for tool in read.agent.tool_definitions or ()),
        "calls": sorted({call.function_name for call in calls}),
        "sources": sorted({step.source for step in read.steps}),
        "answered": sum(
            result.source_call_id is not None
            for part in parts
            for step in part.steps
            if step.observation
            for result in step.observation.results
        ),
    }


if __name__ == "__main__":
    place = Path(sys.argv[1])
    trials = [trial(path.parent) for path in sorted(place.rglob("result.json"))]
    sys.stdout.write(json.dumps(trials + [trajectory(path) for path in sorted(place.rglob("trace-*.json"))]))
