"""`python -m tests.badday`: break an installation in many ways, and print what a user sees, and what is lost.

The model server is simulated; everything else is real. Exit code 1 if a scene is not seen, not repaired, or loses a
trace.
"""

import argparse
import sys

from rich.console import Console
from rich.table import Table

from tests.badday.scenes import SCENES
from tests.badday.world import Seen, broken_installation, play


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.badday", description=__doc__)
    parser.add_argument("words", nargs="*", help="play only scenes whose name has all of these words")
    words = parser.parse_args().words
    scenes = [scene for scene in SCENES if all(word in scene.name for word in words)]
    if not scenes:
        sys.stderr.write(f"badday: no scene has the words {' '.join(words)}\n")
        return 2
    console = Console(highlight=False, width=160)
    results = []
    with broken_installation() as world:
        for scene in scenes:
            results.append(play(world, scene))
            console.print(line(results[-1]), markup=False)
    console.print(table(results))
    passed = sum(result.passed for result in results)
    console.print(f"{passed} passed, {len(results) - passed} failed")
    return 0 if passed == len(results) else 1


def line(result: Seen) -> str:
    return f"{'ok  ' if result.passed else 'FAIL'} {result.scene.name}: {result.after} {result.error}"


def table(results: list[Seen]) -> Table:
    """What a user sees, by which command, after how many seconds; what is lost."""
    shown = Table(box=None, title="Bad days")
    for name in ("", "scene", "seen by, after s", "as", "by hand", "blocks after s", "repeated steps", "failed traces"):
        shown.add_column(name, overflow="fold")
    for result in results:
        seen = ", ".join(f"{name} {'never' if s is None else f'{s:.0f}'}" for name, s in result.after.items())
        wrote = "never" if result.wrote_after is None else f"{result.wrote_after:.0f}"
        shown.add_row(
            "ok" if result.passed else "FAIL",
            result.scene.name,
            seen or "nothing to see",
            result.error or result.shown[:60],
            "yes" if result.scene.mends is not None else "no",
            wrote,
            str(result.repeated),
            str(result.failed),
        )
    return shown


if __name__ == "__main__":
    sys.exit(main())
