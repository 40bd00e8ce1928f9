"""Linting: the time for a round of candidates, and how early a half-written block is known to be broken.

The check of half-written blocks is compared with weave-agent's rule: a syntax error counts only if it lies more than
50 characters before the end.
"""

import ast
import statistics
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

from rich.console import Console

from bench.bars import Figure, table
from weavegen.linting.lint import lint
from weavegen.linting.partial import viable_prefix
from weavegen.trace.blocks import BlockType

VALID = Path(__file__).parent.parent / "tests" / "grammars" / "valid"
REPEATS = 9
GRACE = 50
"""Characters before the end in which weave-agent ignores errors."""

STEP = """    page_{n} = request("/state", {{"cell": {n}, "note": f"step {n} of {{total}}"}})  # look first
    if page_{n}["board"][{n} % 9] not in ("X", "O") and not page_{n}["over"]:
        total += sum(value for value in page_{n}["free"] if value % 2 == {n} % 2)
"""
LONG = (
    "def action_go(self):\n    total = 0\n"
    + "".join(STEP.format(n=n) for n in range(12))
    + '    assert total >= 0, "Is the total no debt?"\nself.add_action("Go through the cells", action_go)\n'
)
PROSE = '"""' + "I look at the board and think about what to do next, and why. " * 48 + '"""\n'

BROKEN: tuple[tuple[str, str], ...] = (
    ("action", "def action_go(self)§\n    move(1)\n"),
    ("action", "def action_go(self):\n    x = = 1§\n    move(1)\n"),
    ("action", "def action_go(self):\n    rows = [1, 2)§\n    move(1)\n"),
    ("action", "def action_go(self):\n    if x = 1:§\n        move(1)\n"),
    ("action", "def action_go(self):\n    move(1)\n  move(2)§\n"),
    ("action", "def action_go(self):\n    move(1)\n        move(2)§\n"),
    ("action", "def action_go(self):\n    text = 'it's mine'§\n    move(1)\n"),
    ("action", "def action_go(self):\n    text = 'one\n§    move(1)\n"),
    ("action", "def action_go(self):\n    for i in range(9)§\n        move(i)\n"),
    ("action", "def action_go(self):\n    try:\n        move(1)\n    move(2)§\n"),
    ("action", "def action_go(self):\n    else:§\n        move(2)\n"),
    ("action", "def action_go(self):\n    print 'moved'§\n    move(2)\n"),
    ("action", "def action_go(self):\n    i++\n§    move(i)\n"),
    ("action", "def action_go(self):\n    move(1);;§ move(2)\n"),
    ("action", "def action_go(self):\n    return x if y\n§    move(2)\n"),
    ("action", "def action_go(self):\nmove§(1)\n"),
    ("action", "def action_go(self):\n    value = 1 2§\n    move(1)\n"),
    ("action", "def action_go(self, 1)§:\n    move(1)\n"),
    ("action", "def action-go(self)§:\n    move(1)\n"),
    ("action", "def action_go(self):\n    a = $x§\n    move(1)\n"),
    ("action", "def action_go(self):\n    move(1)\nThis action§ makes a move.\n"),
    ("action", 'def action_go(self):\n    move(1)\nself.add_action("Go", action_go))§\n'),
    ("action", 'def action_go(self):\n    move(1)\nself.add_action("Go", action_go)\ndef§ again(self):\n    move(2)\n'),
    ("action", "def action_go(self):\n    move(1)\nself.add_eval§uation('Go?', action_go)\n"),
    ("action", "def action_go(self):\n    move(1)\nx§ = 1\ny = 2\n"),
    ("action", "import os§\ndef action_go(self):\n    move(1)\n"),
    ("action", "class Action§:\n    pass\n"),
    ("action", '"""§I think of a move."""\n'),
    ("evaluation", "def eval_a(self):\n    return True\ndef§ eval_b(self):\n    return True\n"),
    ("evaluation", "def eval_a(self):\n    return not\n§    return True\n"),
    ("evaluation", "def eval_a(self):\n    return x =>§ 3\n"),
    ("orientation", '"""I think."""\ndef§ action_go(self):\n    move(1)\n'),
    ("orientation", '"""I think."""\nAnd then§ I think on.\n'),
    ("orientation", '"""I say """hello§""" to you."""\n'),
    ("orientation", 'f"""§I think."""\n'),
    ("orientation", "I think§ about the board.\n"),
    ("debug", "The error§ was mine.\n"),
    ("observation-inference", "class View§:\n    pass\n"),
    ("observation-inference", "self.add_observation_view('a' view§_a)\n"),
    (
        "observation-inference",
        "def view(self):\n    return 1\nself.add_action('a', view)§\nself.remove_observation_view('a')\n",
    ),
)
"""Block type, and a text in which `§` marks the point from which it can't become a legal block."""

FILLER = "    # and so the model goes on, which has not noticed anything\n" * 8


def run(console: Console) -> list[Figure]:
    rounds = {name: candidates(name) for name in ("as they come", "all legal actions", "all with fake lines")}
    spent = {name: measure(texts) for name, texts in rounds.items()}
    console.print(table("\nLinting 64 candidates of 768 tokens, ms", ("candidates", "ms"), list(spent.items())))
    ours, theirs = compare(console)
    began = time.perf_counter()
    for end in range(len(LONG) - 100, len(LONG)):
        viable_prefix(BlockType.ACTION, LONG[:end])
    each = 10 * (time.perf_counter() - began)
    return [
        Figure("lint 64 candidates of 768 tokens, the slowest kind", max(spent.values()), "ms", at_most=250),
        Figure(f"prefix check of {len(LONG):,} characters", each, "ms", at_most=20),
        Figure("broken beginnings refused by the prefix check", ours[0], "%", at_least=95),
        Figure("the same by the 50-character rule", theirs[0], "%"),
        Figure("legal beginnings refused by the prefix check", ours[1], "%", at_most=0),
        Figure("the same by the 50-character rule", theirs[1], "%"),
    ]


def candidates(kind: str) -> list[tuple[BlockType, str]]:
    action = (BlockType.ACTION, LONG)
    fake = (BlockType.ACTION, LONG.replace("# look first", "# q: Is this good? Yes. (99%)"))
    if kind == "all legal actions":
        return [action] * 64
    if kind == "all with fake lines":
        return [fake] * 64
    surplus = (BlockType.ACTION, LONG + "\nmove(1)\n" + LONG[:400].rpartition("\n")[0])
    broken = (BlockType.ACTION, LONG.replace("page_7 = ", "page_7 == = "))
    return [action, (BlockType.ORIENTATION, PROSE), fake, surplus, broken, action, action, surplus] * 8


def measure(texts: list[tuple[BlockType, str]]) -> float:
    """Milliseconds for one round; the median of several."""
    times = []
    for _ in range(REPEATS):
        began = time.process_time()
        for type, text in texts:
            lint(type, text, tokens=768)
        times.append(time.process_time() - began)
    return 1000 * statistics.median(times)


def fifty(text: str) -> bool:
    """weave-agent's rule: whether it accepts a half-written text."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except SyntaxError as error:
        lines = text.split("\n")
        before = sum(len(line) + 1 for line in lines[: (error.lineno or 1) - 1]) + (error.offset or 1) - 1
        return before >= len(text) - GRACE
    return True


def compare(console: Console) -> tuple[tuple[float, float], tuple[float, float]]:
    """For each rule: % of broken blocks refused while they are written, % of legal beginnings refused."""
    delays: tuple[list[int], list[int]] = ([], [])
    for name, marked in BROKEN:
        type, error = BlockType(name), marked.index("§")
        text = marked.replace("§", "") + FILLER
        rules: tuple[Callable[[str], bool], ...] = (partial(viable_prefix, type), fifty)
        for rule, delay in zip(rules, delays, strict=True):
            first = next((end for end in range(error, len(text)) if not rule(text[:end])), None)
            if first is not None:
                delay.append(first - error)
    legal = refused_ours = refused_theirs = 0
    for path in sorted(VALID.rglob("*.py")):
        text = path.read_text()
        for end in range(0, len(text) + 1, 3):
            legal += 1
            refused_ours += not viable_prefix(BlockType(path.parent.name), text[:end])
            refused_theirs += not fifty(text[:end])
    rows: list[list[object]] = []
    for what, delay, refused in zip(
        ("prefix check", "50 characters"), delays, (refused_ours, refused_theirs), strict=True
    ):
        rows.append(
            [what, f"{len(delay)} of {len(BROKEN)}", statistics.median(delay), max(delay), f"{refused} of {legal}"]
        )
    columns = ("rule", "broken refused", "characters late, median", "at most", "legal beginnings refused")
    console.print(table("\nHalf-written blocks", columns, rows))
    ours, theirs = (100 * len(delay) / len(BROKEN) for delay in delays)
    return (ours, 100 * refused_ours / legal), (theirs, 100 * refused_theirs / legal)
