"""The world of the zombie game: its state, and the changes in an hour."""

import random
from collections import Counter
from typing import Any

from .zombie_town import CAPACITY, FUSE, START, TOWN, WEIGHT

LAST_HOUR = 24 * 2 + 20
"""When the last helicopter leaves, in hours since midnight before day 1."""


class Refused(Exception):
    """A command can't be executed. No time has passed."""


class World:
    """The state of a game, and the rules by which it changes."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.loot = {name: list(place.loot) for name, place in TOWN.items()}
        self.loot[self.random.choice(FUSE)].append("fuse")
        for things in self.loot.values():
            self.random.shuffle(things)
        self.zombies = {name: place.zombies for name, place in TOWN.items()}
        self.walls: Counter[str] = Counter()
        self.dropped: dict[str, Counter[str]] = {name: Counter() for name in TOWN}
        self.inventory = Counter(START)
        self.place, self.visited = "flat", {"flat"}
        self.clock, self.awake = 8, 0
        self.health, self.hunger, self.killed = 10, 2, 0
        self.repaired, self.rescue_in = False, -1
        self.result = "playing"
        self.events: list[str] = []

    def state(self) -> dict[str, Any]:
        """Return everything that the player may know, as JSON values."""
        return {
            "place": self.place,
            "day": self.clock // 24 + 1,
            "hour": self.clock % 24,
            "night": self.night,
            "health": self.health,
            "hunger": self.hunger,
            "awake": self.awake,
            "inventory": {name: count for name, count in self.inventory.items() if count},
            "zombies_here": self.zombies[self.place],
            "barricade": self.walls[self.place],
            "lying_here": {name: count for name, count in self.dropped[self.place].items() if count},
            "exits": list(TOWN[self.place].exits),
            "searched_out": not self.loot[self.place],
            "visited": sorted(self.visited),
            "locations_explored": len(self.visited),
            "zombies_killed": self.killed,
            "survival_days": (self.clock - 8) // 24,
            "repaired": self.repaired,
            "rescue_in": self.rescue_in,
            "over": self.result != "playing",
            "won": self.result == "rescued",
            "result": self.result,
        }

    @property
    def night(self) -> bool:
        return not 6 <= self.clock % 24 < 20

    def say(self, text: str) -> None:
        self.events.append(text)

    def use(self, name: str) -> None:
        self.use_up({name: 1})

    def use_up(self, amounts: dict[str, int]) -> None:
        """Take things out of the inventory. Raises Refused if they are not in it."""
        for thing, amount in amounts.items():
            if self.inventory[thing] < amount:
                raise Refused(f"You need {amount} {thing or 'thing'}, and have {self.inventory[thing]}.")
        self.inventory.subtract(amounts)

    def receive(self, name: str) -> None:
        if self.load() + WEIGHT.get(name, 1) > CAPACITY:
            self.dropped[self.place][name] += 1
            self.say(f"You can't carry the {name} as well: it stays on the ground.")
        else:
            self.inventory[name] += 1

    def load(self) -> int:
        return sum(WEIGHT.get(name, 1) * count for name, count in self.inventory.items())

    def neighbour(self, name: str) -> str:
        if name not in TOWN[self.place].exits:
            raise Refused(f"From the {self.place} ways lead to {', '.join(TOWN[self.place].exits)}.")
        return name

    def at_tower(self) -> None:
        if self.place != "tower":
            raise Refused("The transmitter is in the radio tower.")

    def some(self, number: int, chance: float) -> int:
        return sum(self.random.random() < chance for _ in range(number))

    def kill(self, number: int, how: str) -> None:
        number = min(number, self.zombies[self.place])
        self.zombies[self.place] -= number
        self.killed += number
        self.say(f"{how} {number} down, {self.zombies[self.place]} left.")

    def move(self, rest: str, hours: int, notice: float) -> None:
        target = self.neighbour(rest.removeprefix("to ").removeprefix("the "))
        if target == "tower" and not self.inventory["key"]:
            raise Refused("The gate is locked, and you have no key.")
        for _ in range(hours - 1):
            self.hour(noise=0, notice=notice)
        if self.result != "playing":
            return
        self.place = target
        self.visited.add(target)
        self.say(f"{TOWN[target].text} Zombies here: {self.zombies[target]}.")
        self.hour(noise=0, notice=notice)

    def hour(self, noise: int, notice: float) -> None:
        """Advance the game by an hour."""
        noise = max(noise, 3 if self.rescue_in > 0 and self.place == "tower" else 0)
        self.clock += 1
        self.awake += 1
        self.wander(noise)
        blows = self.some(self.zombies[self.place], notice * (0.5 if self.night else 0.33))
        held = min(blows, self.walls[self.place])
        self.walls[self.place] -= held
        self.health -= blows - held
        if held:
            self.say(f"The barricade takes {held} blows; it has {self.walls[self.place]} left.")
        if blows > held:
            self.say(f"You are hurt: health is {max(self.health, 0)}.")
        if self.clock % 3 == 0:
            self.hunger = min(self.hunger + 1, 10)
            if self.hunger >= 8:
                self.health -= 1
                self.say(f"Hunger gnaws at you: health is {max(self.health, 0)}.")
        self.rescue_in -= self.rescue_in > 0
        self.judge()

    def wander(self, noise: int) -> None:
        """Move the zombies: those near a noise come to it, the others move at random. New ones may appear."""
        moves: list[tuple[str, str]] = []
        for name, place in TOWN.items():
            hears = name != self.place and (self.place in place.exits)
            for _ in range(self.zombies[name]):
                if hears and self.random.random() < 0.15 * noise:
                    moves.append((name, self.place))
                elif not (noise and name == self.place) and self.random.random() < (0.2 if self.night else 0.08):
                    moves.append((name, self.random.choice(place.exits)))
        if self.random.random() < (0.5 if self.night else 0.25):
            self.zombies[self.random.choice(("square", "bridge", "farm"))] += 1
        for start, end in moves:
            self.zombies[start] -= 1
            self.zombies[end] += 1
        came = sum(end == self.place for _, end in moves)
        if came:
            self.say("A zombie comes in." if came == 1 else f"{came} zombies come in.")

    def judge(self) -> None:
        """Set the result if the game is over."""
        if self.health <= 0:
            self.result = "dead"
            self.say("You fall, and the valley is silent. You have lost.")
        elif self.rescue_in == 0:
            self.result = "rescued" if self.place == "tower" else "left behind"
            self.say("Rotors! You climb in. You have won." if self.place == "tower" else "It lands without you.")
        elif self.clock >= LAST_HOUR and self.rescue_in < 0:
            self.result = "too late"
            self.say("The last helicopter passes in the dusk. Nobody called it. You have lost.")

    def summary(self) -> str:
        things = ", ".join(f"{count} {name}" for name, count in self.inventory.items() if count)
        rescue = f" Help comes in {self.rescue_in} hours." if self.rescue_in > 0 else ""
        return (
            f"Day {self.clock // 24 + 1}, {self.clock % 24}:00{' (night)' if self.night else ''}. Health "
            f"{max(self.health, 0)} of 10, hunger {self.hunger}{', tired' if self.awake > 18 else ''}. You carry "
            f"{self.load()} of {CAPACITY}: {things or 'nothing'}.{rescue}"
        )
