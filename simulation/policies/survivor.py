"""The policy for bootstraps/zombie_survival.py: key, fuel and fuse first, then the tower; sometimes careless."""

import json
import random
from collections import deque
from typing import Any

from bootstraps.tools.zombie_town import CAPACITY, FUSE, TOWN, WEAPONS, WEIGHT
from simulation.policies import generic, judge
from simulation.policies.draft import Callback, draw_flaw
from simulation.policies.situation import Situation

MISTAKES = {"waits": 0.04, "locked": 0.02}
"""Rates per action: waits for an hour; walks to a place that is not adjacent."""

log_odds = judge.log_odds
State = dict[str, Any]
"""The state as the game's tool returns it."""

_BOOTSTRAP = "The task: survive in Weir Valley"
_JUNK = ("bottle", "cloth", "scrap", "shells", "shotgun")
_VIEW = """def view_hours_left(self):
    now = state()
    return f"Hours until the last helicopter: {3 * 24 - 4 - (now['day'] - 1) * 24 - now['hour']}"

if "Hours left" in [view["title"] for view in self.observation_views]:
    self.remove_observation_view("Hours left")
elif len(self.observation_views) < 8:
    self.add_observation_view("Hours left", view_hours_left)
"""


def knows(situation: Situation) -> bool:
    """Whether the trace is about the zombie game."""
    return bool(situation.type) and _BOOTSTRAP in situation.prompt


def observed(situation: Situation) -> State | None:
    """The state as last observed."""
    for text in situation.observations:
        if text.startswith('{"place": '):
            try:
                return dict(json.loads(text))
            except ValueError:
                return None
    return None


def plan(now: State) -> tuple[str, str]:
    """The next command, and the reason."""
    has, place, zombies = now["inventory"], now["place"], now["zombies_here"]
    late = now["day"] >= 3
    armed = any(weapon in has for weapon in WEAPONS)
    if now["hunger"] >= 6 and "food" in has:
        return "eat", "hunger is near the mark where it wounds"
    if now["health"] <= 6 and "bandage" in has:
        return "heal", "my wounds need a bandage"
    if now["rescue_in"] > 0:
        if zombies and armed:
            return "fight", "whoever gets in must not stay in"
        if has.get("scrap", 0) >= 2 and now["barricade"] < 4:
            return "barricade", "the barricade takes the blows for me"
        return "hide", "I only have to hold out until help comes"
    if zombies == 1 and armed:
        return "fight", "a single one can be fought, and I want my back free"
    if now["health"] <= 6 and "cloth" in has and not zombies:
        return "craft bandage", "my wounds need a bandage, and I have cloth"
    if lying := next((thing for thing in ("key", "fuse", "fuel") if thing in now["lying_here"]), None):
        load = sum(WEIGHT.get(thing, 1) * count for thing, count in has.items())
        if load + WEIGHT.get(lying, 1) > CAPACITY:
            return (f"drop {next((thing for thing in _JUNK if thing in has), 'food')}", f"I need room for the {lying}")
        return f"take {lying}", f"the {lying} is what I came for"
    if place == "tower" and "fuse" in has and not now["repaired"]:
        return "repair", "the transmitter wants its fuse"
    if place == "tower" and now["repaired"] and "fuel" in has:
        return "call", "fuse and fuel are there, so help can be called"
    if not now["searched_out"] and place in (*wanted(now), "pharmacy"):
        return "search", "something that I need may be here"
    if now["health"] <= 5 and now["hunger"] < 8 and not zombies and not late:
        return "sleep", "I need my strength back"
    way = step(place, wanted(now))
    return f"{'go' if late else 'sneak'} {way}", f"the way to the {wanted(now)[0]} leads there"


def wanted(now: State) -> list[str]:
    """The places to visit, the next one first."""
    has, places = now["inventory"], []
    if "key" not in has:
        places.append("police")
    if not now["repaired"] and "fuse" not in has:
        new = [name for name in FUSE if name not in now["visited"]]
        here = [now["place"]] if now["place"] in FUSE and not now["searched_out"] else []
        places += here or new or list(FUSE)
    if "fuel" not in has:
        places.append("petrol")
    return places or ["tower"]


def step(start: str, goals: list[str]) -> str:
    """The first place on the shortest path to the first goal that is not `start`."""
    goal = next((name for name in goals if name != start), "square")
    first = {name: name for name in TOWN[start].exits}
    queue = deque(first)
    while queue:
        name = queue.popleft()
        if name == goal:
            return first[name]
        for after in TOWN[name].exits:
            if after not in first and after != start:
                first[after] = first[name]
                queue.append(after)
    return TOWN[start].exits[0]


def write(situation: Situation, seed: int, number: int) -> str:
    """A block of the requested type."""
    now = observed(situation)
    if now is None:
        return generic.write(situation, seed, number)
    chance = situation.chance(seed, number, json.dumps(now), str(situation.failure is not None))
    return generic.of_type(
        situation,
        seed,
        number,
        chance,
        action=lambda: _action(now, situation.failure is not None, chance),
        evaluation=lambda: _evaluation(now),
        view=_VIEW,
        prose_pools=lambda: _PROSE[situation.type](now),
    )


def _action(now: State, failed: bool, chance: random.Random) -> Callback:
    if now["over"]:
        return Callback(
            "action",
            "return_the_result",
            (
                "now = state()",
                'assert now["over"], "Is the game over?"',
                'self.return_to_caller({"result": now["result"], "zombies_killed": now["zombies_killed"]})',
                'return now["result"]',
            ),
            "Report how the game ended",
        )
    text, _ = plan(now)
    mistake = None if failed else draw_flaw(chance, MISTAKES)
    if mistake == "waits":
        text = "wait"
    elif mistake == "locked":
        text = "go " + chance.choice([name for name in TOWN if name not in now["exits"]])
    name = text.replace(" ", "_")
    lines = [f'told = command("{text}")', 'assert "Commands:" not in told, "Is this a command of the game?"']
    if text.startswith(("go ", "sneak ")):
        target = text.partition(" ")[2]
        lines.append(f'assert state()["place"] == "{target}" or state()["over"], "Have we got there?"')
    return Callback("action", name, (*lines, "return told"), f"In the game: {text}")


def _evaluation(now: State) -> Callback:
    if now["over"]:
        return Callback("evaluation", "has_returned", ("return self.completed",), "Has the caller been told?")
    line = f'return state()["health"] >= {now["health"]}'
    return Callback("evaluation", "not_hurt", (line,), "Did it come off without a wound?")


# ----------------------------------------------------------------------------------------------- prose

Pools = tuple[tuple[str, ...], ...]


def _orientation(now: State) -> Pools:
    if now["over"]:
        return (
            (f"The game is over: {now['result']}.", f"It has ended, and the state says {now['result']}."),
            ("What remains is to report it as it is.", "I return the result that the game gives."),
        )
    text, why = plan(now)
    missing = [thing for thing in ("key", "fuse", "fuel") if thing not in now["inventory"]]
    need = f"I still need {' and '.join(missing)}." if missing else "I have all that the tower asks for."
    return (
        (
            f"At the {now['place']}, {now['hour']}:00: health {now['health']}, hunger {now['hunger']}.",
            f"Day {now['day']}, {now['hour']}:00, at the {now['place']}: {now['zombies_here']} zombies are here.",
        ),
        (need, f"The crux is the time as much as the zombies. {need}"),
        (f"So the next command is `{text}`: {why}.", f"I think that {why}; that means `{text}`."),
    )


def _expectation(now: State) -> Pools:
    return (
        ("The game should have told what happened.", "What the command brought should be in the outcome."),
        (f"My health should not be far below {now['health']}.", "The state shows place, health and hour after it."),
    )


def _debug(now: State) -> Pools:
    return (
        (" I asked for something that can't be done from here.", " the game refused, and nothing has happened."),
        (f"From the {now['place']} ways lead to {', '.join(now['exits'])}.", "The next command is one that fits."),
    )


def _backtrack(now: State) -> Pools:
    return (
        (" cost an hour for nothing.", " bring me no nearer to the tower."),
        (f"`{plan(now)[0] if not now['over'] else 'return'}` serves better.", "I take it back; no time has passed."),
    )


_PROSE = {"orientation": _orientation, "expectation": _expectation, "debug": _debug, "backtrack": _backtrack}
