"""The policy for bootstraps/nano_practice.py: repairs the first difference; sometimes forgets to save."""

import json
import random
import re
from dataclasses import dataclass

from simulation.policies import generic, judge
from simulation.policies.draft import Callback, draw_flaw
from simulation.policies.situation import Situation

MISTAKES = {"unsaved": 0.12, "wrong_line": 0.06}
"""Rates per action."""

log_odds = judge.log_odds

_BOOTSTRAP = "The task: with the editor nano, make a file equal to a given text."
_PLACE = re.compile(r"^At line (\d+):\n((?:- .*\n?)*)((?:\+ .*\n?)*)", re.MULTILINE)
_EQUAL = "The saved file is equal to the text."
_DIFFERS = "Places where the saved file differs from the text:"
_VIEW = """def view_lines(self):
    return f"Lines in the file: {len(written())}, in the text: {len(target)}"

if "Lines" in [view["title"] for view in self.observation_views]:
    self.remove_observation_view("Lines")
elif len(self.observation_views) < 8:
    self.add_observation_view("Lines", view_lines)
"""


@dataclass(frozen=True)
class Practice:
    """The repair to make, as last observed."""

    line: int
    """Line of the first difference; 0 if the file is equal to the text."""
    old: int
    """Lines to cut there."""
    new: tuple[str, ...]
    """Lines to type there."""
    modified: bool
    """Whether nano holds unsaved changes."""


def knows(situation: Situation) -> bool:
    """Whether the trace practises with nano."""
    return bool(situation.type) and _BOOTSTRAP in situation.prompt


def observed(situation: Situation) -> Practice | None:
    """The practice as the newest observations show it."""
    screen = next((text for text in situation.observations if "GNU nano" in text), "")
    modified = any("GNU nano" in line and line.rstrip().endswith("Modified") for line in screen.split("\n"))
    for text in situation.observations:
        if text.startswith(_EQUAL):
            return Practice(0, 0, (), modified)
        if text.startswith(_DIFFERS) and (place := _PLACE.search(text)):
            old = sum(1 for line in place[2].split("\n") if line)
            new = tuple(line[2:] for line in place[3].rstrip("\n").split("\n") if line)
            return Practice(int(place[1]), old, new, modified)
    return None


def write(situation: Situation, seed: int, number: int) -> str:
    """A block of the requested type."""
    now = observed(situation)
    if now is None:
        return generic.write(situation, seed, number)
    failed = situation.failure is not None
    chance = situation.chance(seed, number, repr(now), str(failed))
    return generic.of_type(
        situation,
        seed,
        number,
        chance,
        action=lambda: _action(now, failed, chance),
        evaluation=lambda: _evaluation(now),
        view=_VIEW,
        prose_pools=lambda: _PROSE[situation.type](now),
    )


def _action(now: Practice, failed: bool, chance: random.Random) -> Callback:
    if now.modified or failed:
        return Callback(
            "action",
            "save_what_was_typed",
            (
                'nano = self.tools["nano"]',
                'nano.send_commands(["C-o", "Enter"])',
                'assert "Modified" not in nano.pane.capture_pane(), "Is everything saved?"',
                'return f"{len(changes())} places to mend"',
            ),
            "Save what was typed",
        )
    if not now.line:
        return Callback(
            "action",
            "return_the_similarity",
            (
                'assert file_is_equal(self), "Is the file equal to the text?"',
                'self.return_to_caller({"similarity": similarity()})',
                "return similarity()",
            ),
            "Report that the file is equal to the text",
        )
    mistake = draw_flaw(chance, MISTAKES)
    line = max(now.line - 1, 1) if mistake == "wrong_line" else now.line
    keys = ["C-_", str(line), "Enter", *["C-k"] * now.old]
    lines = ['nano = self.tools["nano"]', "before = changes()", f"nano.send_commands({json.dumps(keys)})"]
    lines += [f"nano.send_commands({json.dumps([text, 'Enter'])})" for text in now.new]
    if mistake != "unsaved":
        lines.append('nano.send_commands(["C-o", "Enter"])')
    lines.append('assert len(changes()) < len(before), "Are there fewer places to mend than before?"')
    lines.append('return f"{len(changes())} places to mend"')
    return Callback("action", f"mend_line_{now.line}", tuple(lines), f"Mend the file at line {now.line}")


def _evaluation(now: Practice) -> Callback:
    if not now.line:
        return Callback("evaluation", "has_returned", ("return self.completed",), "Has the caller been told?")
    end = max(now.line - 1 + len(now.new), 1)
    line = f"return written()[:{end}] == target[:{end}]"
    return Callback("evaluation", "beginning_is_right", (line,), f"Is the file right down to line {end}?")


# ----------------------------------------------------------------------------------------------- prose

Pools = tuple[tuple[str, ...], ...]


def _orientation(now: Practice) -> Pools:
    if not now.line:
        return (
            ("The difference view says that the file is equal to the text.", "No place is left to mend."),
            ("What remains is to tell the caller.", "The task is done, and I return."),
        )
    if now.modified:
        return (
            ('The top line of the screen says "Modified".', "nano holds something that is not in the file yet."),
            ("The view compares the saved file, so I save first.", "Before I mend anything else I save."),
        )
    typed = " and ".join(json.dumps([line]) for line in now.new) or "none"
    return (
        (f"The first place to mend is at line {now.line}.", f"Down to line {now.line} the file is right."),
        (f"Lines to cut there: {now.old}. Lines to type there: {typed}.",),
        ("I mend this place only, for line numbers change.", "One place in a tick, then I look again."),
    )


def _expectation(now: Practice) -> Pools:
    if not now.line:
        return (("The caller should know now, and nothing is left to do.", "This subagent should be completed."),)
    return (
        ("The difference view should list one place less.", f"The file should be right beyond line {now.line}."),
        ('Without "Modified" in the top line all is saved.', "If I forgot to save, the view will be as before."),
    )


def _debug(now: Practice) -> Pools:
    return (
        (" what I typed has not been saved.", " the file on the disk did not change, so the saving is missing."),
        ("I save now, and look again in the next tick.", "The next attempt presses C-o and Enter."),
    )


def _backtrack(now: Practice) -> Pools:
    return (
        (" change a line that is right already.", " not come closer to the text."),
        (f"Line {now.line} is where the work is.", "I take it back; no key was pressed."),
    )


_PROSE = {"orientation": _orientation, "expectation": _expectation, "debug": _debug, "backtrack": _backtrack}
