"""The policy for a bootstrap that no other policy knows: harmless blocks about the working directory."""

import random
import re
from collections.abc import Callable, Sequence

from simulation.policies import judge
from simulation.policies.draft import (
    CALLBACK_FLAWS,
    ENDING,
    EVALUATION_FLAWS,
    PROSE_FLAWS,
    Callback,
    compose,
    continued,
    draw_flaw,
    flawed,
    flawed_prose,
)
from simulation.policies.situation import Situation

log_odds = judge.log_odds

_ACTIONS = (
    Callback(
        "action",
        "list_directory",
        (
            "entries = sorted(os.listdir('.'))",
            'assert isinstance(entries, list), "Could the working directory be listed?"',
            "return entries[:20]",
        ),
        "List the working directory",
    ),
    Callback(
        "action",
        "write_note",
        (
            "with open('notes.txt', 'a') as notes:",
            "    notes.write('looked around\\n')",
            'assert os.path.getsize("notes.txt") > 0, "Did the note reach the file?"',
            "return os.path.getsize('notes.txt')",
        ),
        "Write down where the work stands",
    ),
    Callback(
        "action",
        "count_views",
        (
            "count = len(self.observation_views)",
            'assert count <= 8, "Is there no more than eight of them?"',
            "self.update_cache('views', count)",
            "return count",
        ),
        "Count the observation views",
    ),
)
_EVALUATIONS = (
    Callback(
        "evaluation", "directory_readable", ("return os.access('.', os.R_OK)",), "Can the working directory be read?"
    ),
    Callback(
        "evaluation",
        "notes_are_short",
        ("return not os.path.exists('notes.txt') or os.path.getsize('notes.txt') < 100000",),
        "Are the notes of a size that can be read at a glance?",
    ),
)
_VIEW = """def view_notes(self):
    if not os.path.exists("notes.txt"):
        return "no notes yet"
    with open("notes.txt") as notes:
        return notes.read()[-500:]

if len(self.observation_views) < 8:
    self.add_observation_view("My notes", view_notes)
"""
_PROSE = {
    "orientation": (
        ("The last tick ran as expected.", "Nothing in the last outcome contradicts what I expected."),
        ("The observations show little that is new.", "What I see now is much what I saw before."),
        (
            "The crux is that I do not know enough about the place I work in.",
            "Before I do anything large, I should know what is there.",
        ),
        ("I will take one small step and check it.", "The next step is small and can be checked."),
    ),
    "expectation": (
        ("If the action worked, no assertion failed.", "The action's value should be in the outcome."),
        ("A program can check this in the file system.", "This can be seen in the working directory."),
        ("Had it failed, there would be an error block instead.", "If not, the evaluation will come out false."),
    ),
    "debug": (
        (" the name that I used does not exist in this framework.", " I relied on what nobody promised me."),
        ("The rest of the function was sound.", "Nothing else in the traceback points elsewhere."),
        ("The next attempt uses only what the genesis block shows.", "I will write it again without that call."),
    ),
    "backtrack": (
        (" do nothing for the task.", " say less than a look at the directory would."),
        ("I take it back and do the simpler thing.", "A smaller action serves better here."),
    ),
}  # fmt: skip


def knows(situation: Situation) -> bool:
    """Always true."""
    return True


def write(situation: Situation, seed: int, number: int) -> str:
    """A block of the requested type; a line of prose if the type is unknown."""
    chance = situation.chance(seed, number, situation.gist())
    if situation.type == "action":
        return callback(situation, chance.choice(_ACTIONS), chance)
    if situation.type == "evaluation":
        return callback(situation, chance.choice(_EVALUATIONS), chance)
    if situation.type == "observation-inference":
        return continued(situation, _VIEW) + ENDING
    if situation.type in _PROSE:
        return prose(situation, compose(chance, _PROSE[situation.type]), chance)
    return "\n" + ENDING


def of_type(
    situation: Situation,
    seed: int,
    number: int,
    chance: random.Random,
    *,
    action: Callable[[], Callback],
    evaluation: Callable[[], Callback],
    view: str,
    prose_pools: Callable[[], Sequence[Sequence[str]]],
) -> str:
    """A block of the requested type from the policy's drafts, or a generic one."""
    match situation.type:
        case "action":
            return callback(situation, action(), chance)
        case "evaluation":
            return callback(situation, evaluation(), chance)
        case "observation-inference":
            return continued(situation, view) + ENDING
        case "orientation" | "expectation" | "debug" | "backtrack":
            return prose(situation, compose(chance, prose_pools()), chance)
        case _:
            return write(situation, seed, number)


def callback(situation: Situation, draft: Callback, chance: random.Random) -> str:
    """An action or an evaluation with the usual share of flaws."""
    rates = CALLBACK_FLAWS if draft.kind == "action" else EVALUATION_FLAWS
    return continued(situation, flawed(draft, draw_flaw(chance, rates), chance)) + ENDING


def prose(situation: Situation, text: str, chance: random.Random) -> str:
    """A prose block with the usual share of flaws. The prompt has its opening quotes, and perhaps a stem."""
    opening = "" if situation.body.startswith('"""') else '"""'
    return opening + flawed_prose(text, draw_flaw(chance, PROSE_FLAWS), chance) + "\n" + ENDING


def query(situation: Situation, seed: int, number: int) -> str:
    """A BM25 query about the last observations, in weave-agent's syntax. One in eight can't be parsed."""
    chance = situation.chance(seed, number, situation.gist())
    words = ["action", "check", "result", "error", "assert", "evaluation", "expected", "traceback", "view", "outcome"]
    seen = sorted({word.lower() for text in situation.observations for word in re.findall(r"[A-Za-z]{3,}", text)})
    wanted = chance.sample(words, 6) + chance.sample(seen, min(6, len(seen)))
    if chance.random() < 1 / 8:
        return "I would look for: (" + ", ".join(wanted)
    return " ".join([f"+{wanted[0]}", f"+{wanted[-1]}", *wanted[1:-1], "-import"])
