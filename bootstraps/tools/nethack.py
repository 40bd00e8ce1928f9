"""NetHack in a terminal."""

import contextlib
import os
from typing import TYPE_CHECKING, NamedTuple

from .nethack_screen import CROP, MAP_ROWS, Screen, Thing, parse
from .terminal import WIDTH, Terminal

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
    "(": "tool", "*": "gem", "^": "trap", "@": "human", "d": "dog", "f": "cat", ".": "floor", "-": "horizontal wall",
    "|": "vertical wall",
}  # fmt: skip
"""What NetHack's default symbols mean (nethack(6), option `symset`)."""
STAIRS = ("up staircase", "down staircase")
EXITS = ("door", "corridor")
SIDES = {"northmost": (1, 1), "southmost": (1, -1), "eastmost": (0, 1), "westmost": (0, -1)}
"""By side of the map: which coordinate of a place (columns right, rows up) counts, and with which sign."""
STEPS = {
    (-1, 0): "h", (1, 0): "l", (0, 1): "k", (0, -1): "j", (-1, 1): "y", (1, 1): "u", (-1, -1): "b", (1, -1): "n",
}  # fmt: skip
"""Keys by direction: columns to the right, rows up."""
MAX_STEPS = 80


DIRECTIONS = {
    "west": "h", "south": "j", "north": "k", "east": "l", "northwest": "y", "northeast": "u", "southwest": "b",
    "southeast": "n", "up": "<", "down": ">",
}  # fmt: skip
SHORT = {"w": "west", "s": "south", "n": "north", "e": "east", "nw": "northwest", "ne": "northeast",
         "sw": "southwest", "se": "southeast"}  # fmt: skip
FRAMES = 3
"""Earlier frames that the view shows."""
SHOWN_THINGS = 24
MAX_TURNS = 200
OPTIONS = "time,color,hilite_pet,!number_pad,!popup_dialog"
"""The turn in the status line; doors and pets can be told from walls and monsters by their looks."""


class Frame(NamedTuple):
    """The game after some keys."""

    keys: str
    screen: Screen

    def lines(self) -> list[str]:
        """The keys, the player's place, and the map around it."""
        place = "I can't be seen" if self.screen.player is None else f"at {self.screen.player}"
        return [f"{self.keys[:8]!r} {place}", *self.screen.around()]


class WeaveNethack(Terminal):
    """A game of NetHack: `nethack = WeaveNethack(self)`, later `self.tools["nethack"]`.

    nethack.send_keys("h") sends a key, nethack.send_keys("lll") three; "Escape", "Enter", "C-d" are named keys.
    nethack.move("north"), nethack.move("east", 5), nethack.move("down") on stairs, nethack.search(10),
    nethack.travel(thing) or travel(column, row). nethack.player is my place, (column, row);
    nethack.things("door") what is to be seen, the nearest first, with kind, name, column, row, right, down;
    nethack.status() numbers: hp, max_hp, level, depth, gold, turn, ...; nethack.message the first line.
    """

    programs = ("nethack", "nethack-console", "nethack-tty")
    package = "nethack-console"

    def __init__(self, agent: "Subagent"):
        self.moves: list[tuple[str, bool]] = []
        self.frames: list[Frame] = []
        make_playground()
        options = ",".join(filter(None, [os.environ.get("NETHACKOPTIONS"), OPTIONS]))
        arguments = ("-u", "Weaver", "-@")
        super().__init__(agent, "WeaveNethack", "nethack", arguments=arguments, environ={"NETHACKOPTIONS": options})

    def send_keys(self, command: str) -> None:
        """Send one named key, or each character of a text as a key. Returns when the screen is still."""
        self.check_open()
        before = self.pane.look().text
        if not self.frames:
            self.frames.append(Frame("", self.screen()))
        super().send_keys(command)
        self.moves.append((command, self.pane.look().text != before))
        self.frames = [*self.frames, Frame(command, self.screen())][-FRAMES - 1 :]

    # ---- what there is to see

    def screen(self) -> Screen:
        """The screen with what it means."""
        look = self.pane.look()
        return parse(self.pane.capture_colours(), (look.column - 1, look.row - 1))

    @property
    def player(self) -> tuple[int, int] | None:
        """Where I am: column and row of the screen, from 0. None while a menu or text hides the map."""
        return self.screen().player

    @property
    def message(self) -> str:
        """The first line of the screen."""
        return self.screen().message

    def status(self) -> dict[str, int]:
        """Numbers of the status lines: depth, hp, max_hp, power, armor_class, level, gold, turn, strength, ..."""
        return self.screen().status

    def things(self, *kinds: str) -> list[Thing]:
        """What the map shows, the nearest first; of these kinds only: stairs, door, feature, item, monster, pet.

        A name will do as well: things("down staircase"). After `right` columns and `down` rows I am there.
        """
        return [thing for thing in self.screen().things() if not kinds or {thing.kind, thing.name} & set(kinds)]

    def get_objects(self) -> dict[str, list[tuple[int, int]]]:
        """What the map shows: for each kind of object the places, as (columns right, rows up) of the player.

        So (0, 3) is to the north, as in weave-agent, while a thing of `things` counts rows down. `nearest-stairs` and
        `nearest-exits` are the places of stairs, and of doors and corridors, the nearest first; `northmost-exit`,
        `westmost-stairs` and the like are lists of one place, and `player` is [(0, 0)].
        """
        return objects(self.pane.capture_pane(), self.player)

    # ---- moves

    def move(self, direction: str, steps: int = 1) -> bool:
        """Go so many steps: "north", "southeast", "ne", ...; "up" and "down" take stairs. Stops where I get no further.

        Gives whether all steps were made. A step towards a monster attacks it.
        """
        name = str(direction).lower().replace("-", "").replace(" ", "")
        key = DIRECTIONS.get(SHORT.get(name, name))
        if key is None:
            raise ValueError(f"{direction!r} is no direction: give one of {', '.join(DIRECTIONS)}")
        self.check_ready()
        for step in range(1, min(int(steps), MAX_STEPS) + 1):
            before = self.screen()
            self.send_keys(key)
            after = self.screen()
            depths = before.status.get("depth"), after.status.get("depth")
            if after.player is None or (after.player == before.player and depths[0] == depths[1]):
                return False
            if "--More--" in after.message:
                return step == steps
        return True

    def search(self, turns: int = 1) -> None:
        """Search for hidden doors, traps and monsters beside me, or let time go by. A monster interrupts it."""
        if type(turns) is not int or not 1 <= turns <= MAX_TURNS:
            raise ValueError(f"search 1 to {MAX_TURNS} turns, not {turns!r}")
        self.check_ready()
        self.send_keys(f"{turns}s")

    def travel(self, to: "Thing | int", row: int | None = None) -> bool:
        """Go to a thing, or to a column and row of the screen, on the way that the game knows.

        Gives whether I am there. Something on the way may interrupt it: then call it again.
        """
        column, row = place(to, row)
        if (column, row) == self.player:
            return True
        self.point("_", column, row)
        return self.player == (column, row)

    def describe(self, at: "Thing | int", row: int | None = None) -> str:
        """What the game calls a thing on the map, or what is at a column and row. Takes no time."""
        column, row = place(at, row)
        self.point(";", column, row)
        return self.message

    def point(self, command: str, column: int, row: int) -> None:
        """Give a command that asks for a place, and choose the place with the cursor."""
        player = self.check_ready()
        right, down = column - player[0], row - player[1]
        keys = "@"  # the cursor to the player; capitals move it by eight
        for distance, one, eight in ((right, "hl", "HL"), (down, "kj", "KJ")):
            side = distance > 0
            keys += eight[side] * (abs(distance) // 8) + one[side] * (abs(distance) % 8)
        self.send_keys(f"{command}{keys}.")

    def check_ready(self) -> tuple[int, int]:
        """Return the player's place. Raises RuntimeError if the game waits for something else than a move."""
        screen = self.screen()
        if screen.player is None or "--More--" in screen.message:
            raise RuntimeError("the game waits: read on with Enter, or leave what it asks with Escape")
        return screen.player

    def simple_move(self, coordinates: tuple[int, int]) -> None:
        """Go straight to a place of `get_objects`: columns right, rows up. Stops at obstacles, finds no way around."""
        right, up = coordinates
        for _ in range(min(max(abs(right), abs(up)), MAX_STEPS)):
            step = ((right > 0) - (right < 0), (up > 0) - (up < 0))
            self.send_keys(STEPS[step])
            if not self.moves[-1][1]:
                return
            right, up = right - step[0], up - step[1]

    # ---- the view

    def render(self, agent: "Subagent | None" = None) -> str:
        """The screen, the last keys with whether they changed it, what is on the map, the last frames, and keys."""
        moves = [f"{keys!r}{'' if changed else ' (nothing changed)'}" for keys, changed in self.moves[-SHOWN_KEYS:]]
        shown = [super().render(agent), f"Last keys sent: {', '.join(moves) or 'none'}"]
        screen = self.screen()
        if screen.player is not None:
            shown.append(f"I am at column {screen.player[0]}, row {screen.player[1]}. In view, the nearest first:")
            things = [f"{one.name} {one.symbol} at ({one.column}, {one.row})" for one in screen.things()[:SHOWN_THINGS]]
            shown.append("; ".join(things) or "nothing but floor and walls")
        if len(self.frames) > 1:
            shown += ["The last frames, the part around me, the newest to the right:", *side_by_side(self.frames[:-1])]
        return "\n".join([*shown, KEYS])


def place(at: "Thing | int", row: int | None) -> tuple[int, int]:
    """Return column and row. Raises ValueError if they are not on the map."""
    column, row = (at.column, at.row) if isinstance(at, Thing) else (int(at), row)
    if row is None or row not in MAP_ROWS or not 0 <= column < WIDTH:
        raise ValueError(f"there is no place {(column, row)}: the map has columns 0 to {WIDTH - 1} and rows 1 to 21")
    return column, row


def side_by_side(frames: list[Frame]) -> list[str]:
    """The frames in columns."""
    width = 2 * CROP[0] + 1
    columns = [frame.lines() for frame in frames]
    height = max(map(len, columns))
    rows = [[column[row] if row < len(column) else "" for column in columns] for row in range(height)]
    return [" ! ".join(f"{text[:width]:<{width}}" for text in row).rstrip() for row in rows]


def make_playground() -> None:
    """Make the files and folders that the game needs, if they are missing."""
    with contextlib.suppress(OSError):  # a read-only installation has them
        for folder in ("save", "dumps"):
            os.makedirs(os.path.join(PLAYGROUND, folder), exist_ok=True)
        for file in ("perm", "record", "logfile", "xlogfile"):
            open(os.path.join(PLAYGROUND, file), "a").close()


def objects(screen: list[str], player: tuple[int, int] | None = None) -> dict[str, list[tuple[int, int]]]:
    """The objects on a screen, see `WeaveNethack.get_objects`. Empty without a player; by default, the first @."""
    rows = [(number, screen[number]) for number in MAP_ROWS if number < len(screen)]
    players = [player] if player else [(row.index("@"), number) for number, row in rows if "@" in row]
    if not players:
        return {}
    (x, y), found = players[0], {"player": [(0, 0)]}
    for number, row in rows:
        for column, symbol in enumerate(row):
            if symbol in OBJECTS and (column, number) != (x, y):
                found.setdefault(OBJECTS[symbol], []).append((column - x, y - number))
    for name, one, kinds in (("nearest-stairs", "stairs", STAIRS), ("nearest-exits", "exit", EXITS)):
        places = [place for kind in kinds for place in found.get(kind, ())]
        if places:
            found[name] = sorted(places, key=lambda place: max(abs(place[0]), abs(place[1])))
            for side, (axis, sign) in SIDES.items():
                found[f"{side}-{one}"] = [max((sign * place[axis], place) for place in places)[1]]
    return found
