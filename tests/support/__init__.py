"""What several test modules share. No test module imports another test module."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
TICTACTOE = ROOT / "bootstraps" / "tictactoe.py"
