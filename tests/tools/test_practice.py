"""The first ticks of the bootstraps that chat, edit and play, in a real box."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from weavegen.config import Config
from weavegen.kernel.steps import Executed
from weavegen.sandbox.environment import dry_run

GAMES = "/usr/local/games:/usr/games:/usr/bin:/bin"


def first_tick(config: Config, name: str, **params: Any) -> list[Executed]:
    source = Path(f"bootstraps/{name}.py").read_text()
    return dry_run(config, source, params, ops=("bootstrap", "evaluate", "begin"))


@pytest.mark.parametrize(
    ("name", "program", "package", "params", "views"),
    [
        ("conversation", None, "", {"channel": "hall"}, ["WeaveDiscordClient (hall)", "State"]),
        ("sums", None, "", {"digits": 3}, ["Sum"]),
        ("zombie_survival", None, "", {"minutes": 5}, ["WeaveZombieGame", "State"]),
        ("nano_practice", "nano", "nano", {"text": "clock"}, ["WeaveNano (/app/practice.txt)", "Differences"]),
        ("nethack", "nethack", "nethack-console", {"depth": 2}, ["WeaveNethack"]),
    ],
)
def test_first_ticks(
    config: Config, name: str, program: str | None, package: str, params: dict[str, Any], views: list[str]
) -> None:
    done = first_tick(config, name, **params)
    if program is not None and shutil.which(program, path=GAMES) is None:
        assert not os.environ.get("WEAVEGEN_NO_SKIPS"), f"install the package {package}"
        assert done[0].error is not None
        assert done[0].error.message == f"{program} is not installed: install the package {package} on the host"
        return
    executed, evaluated, begun = done
    assert executed.error is None, executed.error
    assert [(view.title, view.error) for view in begun.views] == [(title, None) for title in views]
    assert [evaluation.value for evaluation in evaluated.evaluations if evaluation.scope == "tick"] == [True]
    assert [evaluation.error for evaluation in evaluated.evaluations] == [None] * len(evaluated.evaluations)
    assert not executed.subagents[0].completed


def test_only_the_first_game_of_zombie_survival_counts(config: Config) -> None:
    source = Path("bootstraps/zombie_survival.py").read_text()
    again = "    command('restart')\n    return [state()['hour'], game.state['hour']]\n"
    [executed] = dry_run(config, source.replace("    return told\n", again), {"minutes": 5})
    assert executed.value == [9, 8]


def test_a_practice_has_the_errors_that_it_shows(config: Config) -> None:
    if shutil.which("nano") is None:
        pytest.skip("nano is not installed")
    _, _, begun = first_tick(config, "nano_practice", text="ferry", faults=0)
    assert begun.views[1].text.startswith("The saved file is equal to the text.")
    _, _, begun = first_tick(config, "nano_practice", text="ferry", faults=9)
    assert begun.views[1].text.startswith("Places where the saved file differs")
    assert "At line " in begun.views[1].text
    assert "Wrote" in begun.views[0].text
