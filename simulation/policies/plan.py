"""Shared by policies of step-by-step tasks: a plan of the next step gives every block of the tick."""

import random
import re
from collections.abc import Callable
from dataclasses import dataclass

from simulation.policies import generic
from simulation.policies.draft import Callback, compose
from simulation.policies.situation import Situation


@dataclass(frozen=True)
class Plan:
    """The policy's plan. All blocks of a tick follow from it."""

    seen: str
    """The observation, as a sentence."""
    step: str
    """The next step, as the rest of a sentence that begins with `I`."""
    action: Callable[[random.Random, str], Callback]
    """Makes the callback from a random generator and the exception's name, empty on the first attempt."""
    evaluation: Callback
    evidence: str
    """The expectation, as a sentence."""


def shown(situation: Situation, pattern: re.Pattern[str]) -> re.Match[str] | None:
    """The first match in the newest observations."""
    texts = (re.sub(r"^#$", "", text, flags=re.MULTILINE) for text in situation.observations)
    return next((match for text in texts if (match := pattern.search(text))), None)


def literal(text: str) -> str:
    """`text` as a Python literal in double quotes, on one line."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def unless_done(condition: str, call: str, failed: str) -> tuple[str, ...]:
    """Lines that make a call. After a failure they check the condition first, because a repeated call is an error."""
    return (f"if {condition}:", f"    {call}") if failed else (call,)


def write(plan: Plan, situation: Situation, seed: int, number: int) -> str:
    """A block of the requested type."""
    failed = (situation.failure or "").strip().rpartition("\n")[2].partition(":")[0]
    chance = situation.chance(seed, number, situation.gist(), failed)
    match situation.type:
        case "action":
            return generic.callback(situation, plan.action(chance, failed), chance)
        case "evaluation":
            return generic.callback(situation, plan.evaluation, chance)
        case "orientation":
            text = f"\n{plan.seen} {compose(chance, _THOUGHTS)} Next I {plan.step}."
        case "expectation":
            text = f"\n{plan.evidence} {compose(chance, _CHECKS)}"
        case "debug":
            cause = _CAUSES.get(failed, " the callback did something that it could not do.")
            text = f"{cause} {compose(chance, _MENDS)} Now I {plan.step}."
        case "backtrack":
            text = f"{compose(chance, _DOUBTS)} It serves better if I {plan.step}."
        case _:
            return generic.write(situation, seed, number)
    return generic.prose(situation, text, chance)


_THOUGHTS = (
    (
        "The last outcome agrees with what I expected.",
        "Nothing in the last outcome contradicts my expectation.",
        "What I meant to happen in the last tick is what I now see.",
    ),
    (
        "I could do several things at once, but then I would not know which of them had failed.",
        "There is room for one action, so it should be the one that the rest depends on.",
        "One could also go back over what is there already, but nothing in the views asks for that.",
    ),
    (
        "The crux is to do what is still missing and to leave alone what is there.",
        "The crux is what the task still lacks, and the view names it.",
        "What decides is what still stands between me and the end of the task.",
    ),
)
_CHECKS = (
    ("The view will show it before the next tick.", "A program can read it where the view reads it."),
    (
        "Had it failed, everything would be as it was.",
        "If nothing has changed there, the action has failed, whatever it returned.",
        "If not, an assertion would have stopped the action.",
    ),
)
_CAUSES = {
    "AssertionError": " one of my assertions did not hold: what I did is not what I meant to do.",
    "ValueError": " a function of the task refused what I gave it, and it says why.",
    "AttributeError": " I called a method that nobody has promised me.",
    "NameError": " I registered a name that was never defined.",
    "SyntaxError": " the block was no legal Python.",
    "IndentationError": " the block's lines were not indented alike.",
}
_MENDS = (
    ("The rest of the function looks sound.", "Nothing else in the traceback points elsewhere."),
    ("I compare each value with the view before I use it.", "I use only what the bootstrap defines."),
)
_DOUBTS = (
    (" bring the task no nearer to its end.", " do something that the views do not ask for."),
    ("I take it back.", "It has not been carried out, so nothing is lost."),
)
