"""The policy for bootstraps/sums.py: adds digit by digit, and sometimes drops a carry."""

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
"""Log odds that a wrong answer loses."""

_BOOTSTRAP = "The task: add numbers up in my head, one sum a tick, and get them all right."
_VIEW = re.compile(r"^(\d+) \+ (\d+) = \?$|^All sums are answered\.", re.MULTILINE)
_ANSWER = re.compile(r"\banswer\((\d+)\)")
_PLACES = ("ones", "tens", "hundreds", "thousands")


@dataclass(frozen=True)
class Sum:
    """The numbers to add, as last observed."""

    a: int
    b: int

    @property
    def steps(self) -> str:
        """The written addition, in sentences."""
        sentences, carry = [], 0
        for place, name in enumerate(_PLACES[: max(len(str(self.a)), len(str(self.b)))]):
            digit_a, digit_b = (number // 10**place % 10 for number in (self.a, self.b))
            total = digit_a + digit_b + carry
            carried = f" + {carry}" if carry else ""
            sentences.append(f"The {name}: {digit_a} + {digit_b}{carried} = {total}, I write {total % 10}")
            carry = total // 10
            sentences[-1] += f" and carry {carry}." if carry else "."
        return " ".join(sentences) + f" The sum is {self.a + self.b}."


def knows(situation: Situation) -> bool:
    """Whether the trace adds numbers."""
    return bool(situation.type) and _BOOTSTRAP in situation.prompt


def plan(situation: Situation) -> Plan | None:
    """The next step; None if no view shows the sum."""
    match = shown(situation, _VIEW)
    if match is None:
        return None
    if match[1] is None:
        return Plan(
            seen="The view says that all sums are answered.",
            step="tell the caller how it went",
            action=_return,
            evaluation=Callback("evaluation", "has_returned", ("return self.completed",), "Has the caller been told?"),
            evidence="This subagent should count as completed.",
        )
    now = Sum(int(match[1]), int(match[2]))
    return Plan(
        seen=f"The sum is {now.a} + {now.b}. {now.steps}",
        step=f"answer {now.a + now.b}",
        action=lambda chance, failed: _answer(now, chance, failed),
        evaluation=Callback("evaluation", "none_is_wrong", ("return not wrong",), "Were all answers right so far?"),
        evidence=f"The answer {now.a + now.b} should count as right, and the view should pose another sum.",
    )


def write(situation: Situation, seed: int, number: int) -> str:
    """A block of the requested type."""
    now = plan(situation)
    if now is None or situation.type == "observation-inference":
        return generic.write(situation, seed, number)
    return write_plan(now, situation, seed, number)


def log_odds(situation: Situation) -> float:
    """As for any block; for an answer also whether it is right."""
    odds = judge.log_odds(situation)
    if situation.type != "action" or (match := shown(situation, _VIEW)) is None:
        return odds
    given = _ANSWER.search(situation.body)
    if match[1] is None or given is None:
        return odds - COST * ((match[1] is None) == (given is not None))
    return odds - COST * (int(given[1]) != int(match[1]) + int(match[2]))


def _answer(now: Sum, chance: random.Random, failed: str) -> Callback:
    mistake = draw_flaw(chance, MISTAKES)
    if mistake == "too_early" and not failed:
        return _return(chance, failed)
    number = now.a + now.b
    if mistake == "carry" and number >= 10:
        number -= 10
    elif mistake == "digit":
        number += chance.choice((-1, 1, 2)) if number else 1
    lines = (f"is_right = answer({number})", 'assert is_right, "Is the sum what I found on paper?"', "return is_right")
    verb = chance.choice(("Answer", "Give the answer"))
    return Callback("action", f"answer_{number}", lines, f"{verb} {number}")


def _return(chance: random.Random, failed: str) -> Callback:
    lines = (
        'assert all_answered(), "Is every sum answered?"',
        'self.return_to_caller({"result": result()})',
        "return result()",
    )
    return Callback("action", "return_the_result", lines, chance.choice(("Return the result", "Tell the caller")))
