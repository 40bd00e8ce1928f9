"""TRL's virtual environment (scripts/trl.sh)."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support import ROOT

PYTHON = ROOT / os.environ.get("TRL_VENV", ".venv-trl") / "bin" / "python"

Train = Callable[[str, Path], Any]
"""`train(trainer, folder)` takes a step on an export, and returns what tests/trl/train.py prints."""
