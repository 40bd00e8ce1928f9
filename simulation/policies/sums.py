"""The policy for bootstraps/sums.py: adds up digit by digit, and drops a carry at times."""

import random
import re
from dataclasses import dataclass

from simulation.policies import generic, judge
from simulation.policies.draft import Callback, draw_flaw
from simulation.policies.plan import Plan, shown
from simulation.policies.plan import write as write_plan
from simulation.policies.situation import Situation

MISTAKES = {"carry": 0.05, "digit": 0.05, "too_early": 0.04}
"""Rates per action."""
COST = 5.0
"""Log odds that a wrong answer costs."""

_BOOTSTRAP = "The task: add numbers up in my head, one sum a tick, and get them all right."
_VIEW = re.compile(r"^(\d+) \+ (\d+) = \?$|^All sums are answered\.", re.MULTILINE)
_ANSWER = re.compile(r"\banswer\((\d+)\)")
_PLACES = ("ones", "tens", "hundreds", "thousands")


@dataclass(frozen=True)
class Sum:
    """What is to be added, as last observed."""

    a: int
    b: int

    @property
    def steps(self) -> str:
        """How it goes on paper, in sentences."""
        said, carry = [], 0
        for place, name in enumerate(_PLACES[: max(len(str(self.a)), len(str(self.b)))]):
            one, other = (number // 10**place % 10 for number in (self.a, self.b))
            found = one + other + carry
            carried = f" + {carry}" if carry else ""
            said.append(f"The {name}: {one} + {other}{carried} = {found}, I write {found % 10}")
            carry = found // 10
            said[-1] += f" and carry {carry}." if carry else "."
        return " ".join(said) + f" The sum is {self.a + self.b}."


def knows(situation: Situation) -> bool:
    """Whether the trace adds up."""
    return bool(situation.type) and _BOOTSTRAP in situation.prompt


def plan(situation: Situation) -> Plan | None:
    """The next step; None where no view shows the sum."""
    found = shown(situation, _VIEW)
    if found is None:
        return None
    if found[1] is None:
        return Plan(
            seen="The view says that all sums are answered.",
            step="tell the caller how it went",
            action=_return,
            evaluation=Callback(
                "evaluation", "has_returned", ("return self.completed",), "Has the caller been told?"
            ),
            evidence="This subagent should count as completed.",
        )
    now = Sum(int(found[1]), int(found[2]))
    return Plan(
        seen=f"The sum is {now.a} + {now.b}. {now.steps}",
        step=f"answer {now.a + now.b}",
        action=lambda chance, failed: _answer(now, chance, failed),
        evaluation=Callback(
            "evaluation", "none_is_wrong", ("return not wrong",), "Were all answers right so far?"
        ),
        evidence=f"The answer {now.a + now.b} should count as right, and the view should pose another sum.",
    )


def write(situation: Situation, seed: int, number: int) -> str:
    """A block of the type that is asked for."""
    now = plan(situation)
    if now is None or situation.type == "observation-inference":
        return generic.write(situation, seed, number)
    return write_plan(now, situation, seed, number)


def log_odds(situation: Situation) -> float:
    """As for any block; of an answer also whether it is right."""
    odds = judge.log_odds(situation)
    if situation.type != "action" or (found := shown(situation, _VIEW)) is None:
        return odds
    given = _ANSWER.search(situation.body)
    if found[1] is None or given is None:
        return odds - COST * ((found[1] is None) == (given is not None))
    return odds - COST * (int(given[1]) != int(found[1]) + int(found[2]))


def _answer(now: Sum, chance: random.Random, failed: str) -> Callback:
    mistake = draw_flaw(chance, MISTAKES)
    if mistake == "too_early" and not failed:
        return _return(chance, failed)
    number = now.a + now.b
    if mistake == "carry" and number >= 10:
        number -= 10
    elif mistake == "digit":
        number += chance.choice((-1, 1, 2)) if number else 1
    lines = (
        f"is_right = answer({number})",
        'assert is_right, "Is the sum what I found on paper?"',
        "return is_right",
    )
    verb = chance.choice(("Answer", "Give the answer"))
    return Callback("action", f"answer_{number}", lines, f"{verb} {number}")


def _return(chance: random.Random, failed: str) -> Callback:
    lines = (
        'assert all_answered(), "Is every sum answered?"',
        'self.return_to_caller({"result": result()})',
        "return result()",
    )
    return Callback("action", "return_the_result", lines, chance.choice(("Return the result", "Tell the caller")))
