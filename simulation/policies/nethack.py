"""The policy for bootstraps/nethack.py: walks around, takes stairs that it sees, and answers the game's questions."""

import json
import random
import re
from dataclasses import dataclass

from simulation.policies import generic, judge
from simulation.policies.draft import Callback, compose
from simulation.policies.situation import Situation

log_odds = judge.log_odds

_BOOTSTRAP = "The task: go down into the dungeon of NetHack"
_SCREEN = re.compile(r"^WeaveNethack: (.*)\n([\s\S]*?)\nLast keys sent:", re.MULTILINE)
_GOAL = re.compile(r"Reach level (\d+) of NetHack")
_QUESTION = re.compile(
    r"\[[ynqa]+\] ?(?:\(\w\) ?)?$|\(end\)|\(\d+ of \d+\)|^(?:What|Where|In what|Pick|Call)\b.*", re.MULTILINE
)
_RUNS = ("H", "J", "K", "L", "Y", "U", "B", "N")


@dataclass(frozen=True)
class Screen:
    """The game as last observed."""

    running: bool
    text: str
    depth: int

    @property
    def stairs(self) -> bool:
        """Whether stairs down are on the map, which is between the message line and the two status lines."""
        return any(">" in line for line in self.text.split("\n")[1:-2])


def knows(situation: Situation) -> bool:
    """Whether the trace plays NetHack."""
    return bool(situation.type) and _BOOTSTRAP in situation.prompt


def observed(situation: Situation) -> Screen | None:
    """The screen as the newest observations show it."""
    for text in situation.observations:
        if match := _SCREEN.search(text):
            depth = re.search(r"\bDlvl:(\d+)", match[2])
            return Screen("has ended" not in match[1], match[2], int(depth[1]) if depth else 0)
    return None


def keys(now: Screen, goal: int, chance: random.Random) -> tuple[list[str], str]:
    """The keys to press, and the reason. No keys: the game is over, or the goal is reached."""
    if not now.running:
        return [], "the game is over"
    if now.depth >= goal:
        return [], "the level that was asked for is reached"
    if "--More--" in now.text:
        return ["Enter"], "the game waits for me to read on"
    if _QUESTION.search(now.text):
        return ["Escape"], "the game asks something that I need not answer"
    if now.stairs:
        return ["_", ">", ".", ">"], "stairs down are on the map"
    if chance.random() < 0.15:
        return ["1", "0", "s"], "there may be a hidden door"
    return chance.sample(_RUNS, 2), "where the map is empty there is more to find"


def write(situation: Situation, seed: int, number: int) -> str:
    """A block of the requested type."""
    now = observed(situation)
    if now is None or situation.type == "observation-inference":
        return generic.write(situation, seed, number)
    chance = situation.chance(seed, number, now.text, str(situation.failure is not None))
    goals = _GOAL.findall(situation.prompt)
    pressed, why = keys(now, int(goals[-1]) if goals else 4, random.Random(f"{seed} {now.text}"))
    match situation.type:
        case "action":
            return generic.callback(situation, _action(pressed), chance)
        case "evaluation":
            return generic.callback(situation, _evaluation(pressed), chance)
        case "orientation" | "expectation" | "debug" | "backtrack":
            return generic.prose(situation, compose(chance, _prose(situation.type, pressed, why)), chance)
        case _:
            return generic.write(situation, seed, number)


def _action(pressed: list[str]) -> Callback:
    if not pressed:
        return Callback(
            "action",
            "return_the_depth",
            (
                "depth = deepest()",
                'assert depth >= 1, "Has a level been reached at all?"',
                'self.return_to_caller({"depth": depth, "alive": is_running()})',
                "return depth",
            ),
            "Report how deep I have come",
        )
    return Callback(
        "action",
        "press_keys",
        (
            'assert is_running(), "Does the game still run?"',
            f"game().send_commands({json.dumps(pressed)})",
            "deepest()",
            "return status()",
        ),
        f"Press {' '.join(pressed)}",
    )


def _evaluation(pressed: list[str]) -> Callback:
    if not pressed:
        return Callback("evaluation", "has_returned", ("return self.completed",), "Has the caller been told?")
    return Callback("evaluation", "is_alive", ('return status().get("hp", 1) > 0',), "Am I alive?")


def _prose(type: str, pressed: list[str], why: str) -> tuple[tuple[str, ...], ...]:
    what = f"press {' and '.join(pressed)}" if pressed else "return to the caller"
    return {
        "orientation": (
            ("The map shows little of this level so far.", "I look at the map and at the status below it."),
            (f"What matters now: {why}.", f"The crux is that {why}."),
            (f"So I {what}, and look again.", f"The next step: {what}."),
        ),
        "expectation": (
            ("The screen should have changed.", "The view says which of the keys changed something."),
            ("The status shows whether I was hurt.", "My hit points should not have dropped much."),
        ),
        "debug": (
            (" the game did not take what I sent.", " I asked the tool for something that it does not do."),
            ("The next attempt uses game() and its keys only.", "I send the keys one by one."),
        ),
        "backtrack": (
            (" lead nowhere on this map.", " put me in danger for nothing."),
            (f"It is better to {what}.", "I take it back; no key was pressed."),
        ),
    }[type]
