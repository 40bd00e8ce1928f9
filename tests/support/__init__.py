"""What several test modules share. No test module is imported by another one."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
TICTACTOE = ROOT / "bootstraps" / "tictactoe.py"
