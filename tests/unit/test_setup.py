"""The environment that scripts/setup.sh makes, and that the Makefile's targets use."""

import os
import subprocess

from tests.support import ROOT


def test_every_target_uses_the_environment_that_setup_makes() -> None:
    given = {"PATH": os.environ["PATH"], "VENV": "made"}
    for target in ("test", "check", "house", "settings"):
        done = subprocess.run(["make", "-n", target], cwd=ROOT, env=given, capture_output=True, text=True, check=True)
        assert "made/bin/" in done.stdout
        assert ".venv" not in done.stdout
