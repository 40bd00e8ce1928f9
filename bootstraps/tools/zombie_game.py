"""The commands of the zombie game."""

from collections.abc import Callable

from .zombie_town import CAPACITY, INTRO, RECIPES, TOWN, WEAPONS, WEIGHT
from .zombie_world import Refused, World


class Game(World):
    """A game. `command` plays it, `state` returns its state."""

    def __init__(self, seed: int):
        super().__init__(seed)
        self.commands: dict[str, Callable[[str], None]] = {
            name.removeprefix("do_"): getattr(self, name) for name in dir(self) if name.startswith("do_")
        }
        self.commands.update(scavenge=self.do_search, walk=self.do_go, inventory=self.do_status)

    def command(self, text: str) -> str:
        """Execute a command line. Returns a text that tells what happened."""
        verb, _, rest = " ".join(text.lower().split()).partition(" ")
        self.events = []
        try:
            if self.result != "playing" and verb not in ("help", "status", "map", "inventory"):
                raise Refused(f"The game is over: {self.result}. `restart` begins another.")
            if verb not in self.commands:
                raise Refused(f"There is no command {verb!r}. Commands: {', '.join(sorted(self.commands))}.")
            self.commands[verb](rest)
        except Refused as refusal:
            self.say(str(refusal))
        return " ".join(self.events) if verb != "help" else "\n".join(self.events)

    # ---- commands; the first line of each text is what `help` says

    def do_help(self, rest: str) -> None:
        """help: this list; takes no time."""
        self.say(INTRO)
        methods = dict.fromkeys(self.commands.values())
        self.events += [f"  {(method.__doc__ or '').strip()}" for method in methods]
        self.say("At night (20 to 6) zombies roam and hit more. Noise draws them in. Hunger of 8 and more hurts.")

    def do_look(self, rest: str) -> None:
        """look: what is here; takes no time."""
        lying = [f"{count} {name}" for name, count in self.dropped[self.place].items() if count]
        self.say(f"{TOWN[self.place].text} Ways lead to {', '.join(TOWN[self.place].exits)}.")
        self.say(f"Zombies here: {self.zombies[self.place]}. Barricade: {self.walls[self.place]}.")
        self.say("Nothing is left to find." if not self.loot[self.place] else "There may be more to find.")
        if lying:
            self.say(f"On the ground: {', '.join(lying)}.")

    def do_listen(self, rest: str) -> None:
        """listen: how many zombies are in the places next to this; takes no time."""
        counts = [f"{name} {self.zombies[name]}" for name in TOWN[self.place].exits]
        self.say(f"You hold your breath. Zombies: {', '.join(counts)}.")

    def do_map(self, rest: str) -> None:
        """map: which places are next to which; takes no time."""
        self.say("; ".join(f"{name}: {', '.join(place.exits)}" for name, place in TOWN.items()) + ".")

    def do_status(self, rest: str) -> None:
        """status: health, hunger and what you carry; takes no time."""
        self.say(self.summary())

    def do_go(self, rest: str) -> None:
        """go PLACE: walk to a place next to this; 1 hour."""
        self.move(rest, hours=1, notice=0.6)

    def do_sneak(self, rest: str) -> None:
        """sneak PLACE: the same, hardly seen; 2 hours."""
        self.move(rest, hours=2, notice=0.15)

    def do_search(self, rest: str) -> None:
        """search: look for useful things here; 1 hour, some noise."""
        found = [self.loot[self.place].pop() for _ in range(min(2, len(self.loot[self.place])))]
        self.say(f"You find {' and '.join(found)}." if found else "You find nothing: this place is empty.")
        for name in found:
            self.receive(name)
        self.hour(noise=1, notice=0.6)

    def do_take(self, rest: str) -> None:
        """take THING: pick up what lies on the ground; takes no time."""
        if not self.dropped[self.place][rest]:
            raise Refused(f"There is no {rest or 'such thing'} on the ground here.")
        if self.load() + WEIGHT.get(rest, 1) > CAPACITY:
            raise Refused(f"You can't carry more than {CAPACITY}: drop something first.")
        self.dropped[self.place][rest] -= 1
        self.inventory[rest] += 1
        self.say(f"You take the {rest}.")

    def do_drop(self, rest: str) -> None:
        """drop THING: lay something down; takes no time."""
        self.use(rest)
        self.dropped[self.place][rest] += 1
        self.say(f"You lay down the {rest}.")

    def do_eat(self, rest: str) -> None:
        """eat: one food takes 5 off your hunger; takes no time."""
        self.use("food")
        self.hunger = max(self.hunger - 5, 0)
        self.say(f"You eat. Hunger is {self.hunger}.")

    def do_heal(self, rest: str) -> None:
        """heal: one bandage gives 4 health, 10 at most; takes no time."""
        self.use("bandage")
        self.health = min(self.health + 4, 10)
        self.say(f"You dress your wounds. Health is {self.health}.")

    def do_craft(self, rest: str) -> None:
        """craft bandage: of 1 cloth; craft spear: of 2 scrap and 1 cloth; 1 hour."""
        if rest not in RECIPES:
            raise Refused(f"You can craft {' and '.join(RECIPES)}.")
        self.use_up(RECIPES[rest])
        self.receive(rest)
        self.say(f"You have made a {rest}.")
        self.hour(noise=0, notice=0.5)

    def do_barricade(self, rest: str) -> None:
        """barricade: 2 scrap make a barricade that takes 4 blows for you; 1 hour, noisy."""
        self.use_up({"scrap": 2})
        self.walls[self.place] += 4
        self.say(f"You nail the way shut. Barricade: {self.walls[self.place]}.")
        self.hour(noise=2, notice=1.0)

    def do_fight(self, rest: str) -> None:
        """fight: strike with axe, spear or knife, whichever is best; 1 hour, some noise."""
        weapon = next((name for name in WEAPONS if self.inventory[name]), None)
        if weapon is None or not self.zombies[self.place]:
            raise Refused("You have no weapon." if weapon is None else "There is nobody to fight.")
        chance, blows = WEAPONS[weapon]
        chance -= 0.2 if self.awake > 18 else 0
        self.kill(sum(self.random.random() < chance for _ in range(blows)), f"You swing the {weapon}.")
        self.hour(noise=1, notice=1.0)

    def do_shoot(self, rest: str) -> None:
        """shoot: shotgun and shells kill up to 3; 1 hour, and everybody hears it."""
        if not self.zombies[self.place]:
            raise Refused("There is nobody to shoot.")
        if not self.inventory["shotgun"]:
            raise Refused("You have no shotgun.")
        self.use("shells")
        self.kill(self.random.randint(2, 3), "The shot rolls through the valley.")
        self.hour(noise=4, notice=1.0)

    def do_throw(self, rest: str) -> None:
        """throw PLACE: a bottle shatters in a place next to this and draws the zombies there; takes no time."""
        target = self.neighbour(rest)
        self.use("bottle")
        drawn = 0
        for name in TOWN[target].exits:
            going = self.some(self.zombies[name], 0.8)
            self.zombies[name] -= going
            drawn += going
        self.zombies[target] += drawn
        self.say(f"The bottle bursts at the {target}. Zombies drawn there: {drawn}.")

    def do_hide(self, rest: str) -> None:
        """hide: keep still, hardly to be found; 1 hour."""
        self.say("You keep very still.")
        self.hour(noise=0, notice=0.1)

    def do_wait(self, rest: str) -> None:
        """wait: let an hour go by, on your guard."""
        self.say("You wait.")
        self.hour(noise=0, notice=0.4)

    def do_sleep(self, rest: str) -> None:
        """sleep: up to 6 hours, until you are hurt; gives 1 health in 2 hours if you are not starving."""
        self.say("You lie down.")
        for hours in range(1, 7):
            before, self.awake = self.health, -1
            self.hour(noise=0, notice=0.5)
            if self.health < before or self.result != "playing":
                self.say(f"You start up after {hours} hours.")
                return
            if hours % 2 == 0 and self.hunger < 8:
                self.health = min(self.health + 1, 10)
        self.say(f"You wake rested. Health is {self.health}.")

    def do_repair(self, rest: str) -> None:
        """repair: put the fuse into the transmitter, at the tower; 1 hour."""
        self.at_tower()
        self.use("fuse")
        self.repaired = True
        self.say("The fuse fits. The transmitter wants power now.")
        self.hour(noise=1, notice=0.6)

    def do_call(self, rest: str) -> None:
        """call: fuel the generator and call for help, at the tower; 1 hour, and six more of noise."""
        self.at_tower()
        if not self.repaired:
            raise Refused("The transmitter is dead: it needs its fuse (`repair`).")
        self.use("fuel")
        self.say("A voice answers: six hours. Be there.")
        self.rescue_in = 7
        self.hour(noise=3, notice=0.6)
