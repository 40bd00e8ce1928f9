"""What it costs to try sixteen candidates in copies of an environment, their own running time included.

How the boxes run (by root or an ordinary user, with control groups or without) depends on the user who runs this.
"""

import json
import os
import statistics
import tempfile
import time
from pathlib import Path

from rich.console import Console

from bench.bars import Figure, table
from weavegen import config as configuration
from weavegen.kernel.steps import Execute
from weavegen.sandbox import groups
from weavegen.sandbox.environment import Environment
from weavegen.trace.blocks import BlockType

TRIALS = 16
REPEATS = 9
EMPTY = "def action_nothing(self):\n    return 1\n\nself.add_action('Nothing', action_nothing)\n"
STATES = {
    "1 MB of files": ("open('file', 'wb').write(bytes(10**6))", 100),
    "50 MB in one file": ("open('file', 'wb').write(bytes(50 * 10**6))", 400),
    "50 MB in 1,000 files": ("[open(f'file{n}', 'wb').write(bytes(50_000)) for n in range(1000)]", 400),
    "200 MB of objects": ("self.held = [{'number': n, 'text': str(n)} for n in range(650_000)]", TRIALS * 60),
}
"""By name: what makes the state, and the most milliseconds that the trials may take."""


def run(console: Console) -> list[Figure]:
    """Try an empty action sixteen times in each state."""
    rows, figures = [], []
    for name, (state, most) in STATES.items():
        seconds = measured(state)
        took = 1000 * statistics.median(seconds)
        rows.append([name, took, 1000 * min(seconds), took / TRIALS])
        figures.append(Figure(f"{TRIALS} trials, {name}", took, "ms", at_most=most))
    limited = "with control groups" if groups.parents() else "without control groups"
    user = "root" if os.getuid() == 0 else "an ordinary user"
    title = f"\n{TRIALS} trials of an empty action by {user}, {limited}: milliseconds of {REPEATS} repeats"
    console.print(table(title, ("state", "median", "least", "median of one"), rows))
    return figures


def measured(state: str) -> list[float]:
    """Seconds of each repeat in a box of its own."""
    with tempfile.TemporaryDirectory(prefix="weavegen-bench-") as home:
        Path(home).chmod(0o711)
        environment = Environment.start(configuration.load({"WEAVEGEN_HOME": home}), 1)
        try:
            source = EMPTY.replace("return 1", f"{state}\n    return 1")
            made = environment.execute(1, Execute(op="run", type=BlockType.ACTION, source=source))
            assert made.error is None, made.error
            places = tuple((0, number) for number in range(TRIALS))
            step = Execute(op="try", type=BlockType.ACTION, source=json.dumps([EMPTY] * TRIALS), candidates=places)
            seconds = []
            for repeat in range(REPEATS):
                began = time.perf_counter()
                done = environment.execute(2 + repeat, step)
                seconds.append(time.perf_counter() - began)
                assert [one.error for one in done.trials] == [None] * TRIALS, done
            return seconds
        finally:
            environment.stop(keep_workspace=False)
