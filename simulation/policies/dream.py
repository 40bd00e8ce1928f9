"""The policy for blocks that the model writes only in planning: observations, errors, outcomes."""

import random

from simulation.policies.draft import ENDING, compose
from simulation.policies.situation import Situation, plain

TYPES = ("observation", "error", "outcome")
FAILS = 0.15
"""Share of the executed blocks that end in an error."""
FLAW = 0.1
"""Share of the texts that continue with a line that is not a comment."""

_ERRORS = (
    "AssertionError: Is the result what was asked for?",
    "AttributeError: 'Subagent' object has no attribute 'look'",
    "TimeoutError: this took longer than 30 seconds",
    "ValueError: there is nothing under that name",
)
_OBSERVED = (
    ("Nothing has changed since the last tick.", "Something has moved on since the last tick."),
    ("What is shown is as it was expected.", "Most of what is shown is as it was expected."),
)


def next_type(situation: Situation, seed: int, number: int) -> str:
    """The type of the next block. One name in eight is invalid."""
    chance = situation.chance(seed, number, situation.gist())
    last = next(situation.blocks_before(), ("", ""))[0]
    # The same for all candidates, so that it does not matter whose answer is the first legal one.
    failed = random.Random(f"{seed} {last} {situation.gist()}").random() < FAILS
    after = {"action": "expectation", "evaluation": "outcome", "observation-inference": "evaluation"}
    name = "error" if failed else after.get(last, "task-reminder")
    return (chance.choice(["result", "next", "the end"]) if chance.random() < 1 / 8 else name) + "\n"


def write(situation: Situation, seed: int, number: int) -> str:
    """An observation, an error or an outcome, as comment lines."""
    chance = situation.chance(seed, number, situation.gist())
    if situation.type == "error":
        text = f'Traceback (most recent call last):\n  File "/app/block.py", line 3\n{chance.choice(_ERRORS)}'
    elif situation.type == "outcome":
        text = f"Outcome:\naction | as planned | {chance.choice(['done', 'True', 'None'])}\n{_evaluation(situation)}"
    else:
        seen = situation.observations
        text = seen[0].rstrip("\n") if seen and chance.random() < 0.7 else compose(chance, _OBSERVED)
    text = "\n".join(f"# {line}".rstrip() for line in text.split("\n"))
    if chance.random() < FLAW:
        text += "\nseen = True"
    return text.removeprefix(situation.body) + "\n" + ENDING


def _evaluation(situation: Situation) -> str:
    for type, body in situation.blocks_before():
        if type == "evaluation" and "add_evaluation(" in body:
            title = plain(body).rpartition("add_evaluation(")[2].split('"')[1:2]
            return f"tick evaluation | {title[0] if title else 'Did it work?'} | True"
    return "task evaluation | Is the task done? | False"
