"""NetHack in a terminal."""

import contextlib
import os
from typing import TYPE_CHECKING

from .terminal import Terminal

if TYPE_CHECKING:
    from weavegen.box.api import Subagent

PLAYGROUND = "/var/games/nethack"
"""Where NetHack keeps its games. In a new box it is empty."""
SHOWN_KEYS = 5
"""Keys that the view lists."""
KEYS = """\
Moves: h west, l east, k north, j south, y northwest, u northeast, b southwest, n southeast; capitals run.
Others: s search or wait, . wait, , pick up, i inventory, o open, c close, C-d kick, F + move fight, < up, > down,
e eat, q drink, r read, w wield, W wear, t throw, f fire, z zap, Z cast, E engrave, : look here, ; what is there,
& what does a key do, Escape cancel."""


OBJECTS = {
    "<": "up staircase", ">": "down staircase", "+": "door", "#": "corridor", "_": "altar", "{": "fountain",
    "$": "gold", ")": "weapon", "[": "armor", "%": "food", "?": "scroll", "!": "potion", "/": "wand", "=": "ring",
    "(": "tool", "*": "gem", "^": "trap", "@": "human", "d": "dog", "f": "cat",
}  # fmt: skip
"""What NetHack's default symbols mean (nethack(6), option `symset`)."""
STAIRS = ("up staircase", "down staircase")
EXITS = ("door", "corridor")
MAP_ROWS = range(1, 22)
"""Rows of the screen that show the map; messages are above it, the status below."""
STEPS = {
    (-1, 0): "h", (1, 0): "l", (0, -1): "k", (0, 1): "j", (-1, -1): "y", (1, -1): "u", (-1, 1): "b", (1, 1): "n",
}  # fmt: skip
"""Keys by direction: columns to the right, rows down."""
MAX_STEPS = 80


class WeaveNethack(Terminal):
    """A game of NetHack: `nethack = WeaveNethack(self)`, later `self.tools["nethack"]`.

    nethack.send_keys("h") sends a key, nethack.send_keys("lll") three; "Escape", "Enter", "C-d" are named keys.
    `nethack.pane.capture_pane()` gives the lines of the screen. `nethack.get_objects()` says what is to be seen and
    where, `nethack.simple_move((5, -2))` goes 5 columns to the right and 2 rows up.
    """

    programs = ("nethack", "nethack-console", "nethack-tty")
    package = "nethack-console"

    def __init__(self, agent: "Subagent"):
        self.moves: list[tuple[str, bool]] = []
        make_playground()
        super().__init__(agent, "WeaveNethack", "nethack", arguments=("-u", "Weaver", "-@"))

    def send_keys(self, keys: str) -> None:
        """Send one named key, or each character of a text as a key. Returns when the screen is still."""
        self.check_open()
        before = self.pane.look().text
        super().send_keys(keys)
        self.moves.append((keys, self.pane.look().text != before))

    def get_objects(self) -> dict[str, list[tuple[int, int]]]:
        """What the map shows: for each kind of object the places, as (columns right, rows down) of the player.

        `nearest-stairs` and `nearest-exits` are the places of stairs, and of doors and corridors, the nearest first.
        """
        return objects(self.pane.capture_pane())

    def simple_move(self, coordinates: tuple[int, int]) -> None:
        """Go straight to a place relative to the player, until something is in the way. There is no path finding."""
        right, down = coordinates
        for _ in range(min(max(abs(right), abs(down)), MAX_STEPS)):
            step = ((right > 0) - (right < 0), (down > 0) - (down < 0))
            self.send_keys(STEPS[step])
            if not self.moves[-1][1]:
                return
            right, down = right - step[0], down - step[1]

    def render(self, agent: "Subagent | None" = None) -> str:
        """The screen, the last keys with whether they changed it, and a list of keys."""
        moves = [f"{keys!r}{'' if changed else ' (nothing changed)'}" for keys, changed in self.moves[-SHOWN_KEYS:]]
        return f"{super().render(agent)}\nLast keys sent: {', '.join(moves) or 'none'}\n{KEYS}"


def make_playground() -> None:
    """Make the files and folders that the game needs, if they are missing."""
    with contextlib.suppress(OSError):  # a read-only installation has them
        for folder in ("save", "dumps"):
            os.makedirs(os.path.join(PLAYGROUND, folder), exist_ok=True)
        for file in ("perm", "record", "logfile", "xlogfile"):
            open(os.path.join(PLAYGROUND, file), "a").close()


def objects(screen: list[str]) -> dict[str, list[tuple[int, int]]]:
    """The objects on a screen, see `WeaveNethack.get_objects`. Empty without a player."""
    rows = [(number, screen[number]) for number in MAP_ROWS if number < len(screen)]
    players = [(row.index("@"), number) for number, row in rows if "@" in row]
    if not players:
        return {}
    (x, y), found = players[0], dict[str, list[tuple[int, int]]]()
    for number, row in rows:
        for column, symbol in enumerate(row):
            if symbol in OBJECTS and (column, number) != (x, y):
                found.setdefault(OBJECTS[symbol], []).append((column - x, number - y))
    for name, kinds in (("nearest-stairs", STAIRS), ("nearest-exits", EXITS)):
        places = [place for kind in kinds for place in found.get(kind, ())]
        if places:
            found[name] = sorted(places, key=lambda place: max(abs(place[0]), abs(place[1])))
    return found
