"""Reads NetHack's screen: the player's place, what is on the map, and the numbers of the status lines."""

import re
from typing import NamedTuple

MESSAGE_ROW = 0
MAP_ROWS = range(1, 22)
"""Rows of the screen that show the map; messages are above it, the status below."""
STATUS_ROWS = range(22, 24)
CROP = (12, 3)
"""Columns and rows that a frame shows on each side of the player."""

STAIRS = {"<": "up staircase", ">": "down staircase"}
DOORS = {"+": "closed door", "|": "open door", "-": "open door"}
"""Doors are yellow. A grey `|` or `-` is a wall, a `+` in another colour a spellbook."""
FEATURES = {"#": "corridor", "_": "altar", "{": "fountain", "\\": "throne", "}": "water or lava", "^": "trap"}
ITEMS = {
    "$": "gold", ")": "weapon", "[": "armor", "%": "food", "?": "scroll", "!": "potion", "/": "wand", "=": "ring",
    "(": "tool", "*": "gem", '"': "amulet", "+": "spellbook", "`": "boulder or statue", "0": "iron ball",
}  # fmt: skip
MONSTER = re.compile(r"[A-Za-z@&':;~]")
LETTERS = {
    "d": "dog or jackal", "f": "cat", "@": "human or elf", "k": "kobold", "r": "rat", "x": "grid bug", "n": "nymph",
    "G": "gnome", "h": "dwarf or hobbit", "o": "orc", "F": "fungus", "Z": "zombie", ":": "newt or lizard", "S": "snake",
    "a": "ant or bee", "e": "floating eye", "D": "dragon", "u": "horse", "s": "spider", "b": "blob", "B": "bat or bird",
}  # fmt: skip
"""What the letters of common monsters mean; pets have theirs, too."""
NUMBERS = {
    "Dlvl": "depth", "$": "gold", "HP": "hp", "Pw": "power", "AC": "armor_class", "Xp": "level", "Exp": "level",
    "T": "turn", "St": "strength", "Dx": "dexterity", "Co": "constitution", "In": "intelligence", "Wi": "wisdom",
    "Ch": "charisma",
}  # fmt: skip
STATUS = re.compile(r"(Dlvl|\$|HP|Pw|AC|Xp|Exp|T|St|Dx|Co|In|Wi|Ch):(-?\d+)(?:\((\d+)\))?")
OVERLAID = re.compile(r"--More--|\(end\)|\(\d+ of \d+\)")
"""A menu or a text lies on the map."""
SGR = re.compile(r"\x1b\[([\d;]*)m|\x1b.|[\x0e\x0f]")
YELLOW = 33


class Cell(NamedTuple):
    """A character of the screen."""

    symbol: str
    colour: int | None
    """30 to 37 as in ECMA-48; None: the default."""
    reverse: bool


class Thing(NamedTuple):
    """Something on the map."""

    kind: str
    """stairs, door, feature, item, monster or pet."""
    name: str
    symbol: str
    column: int
    row: int
    right: int
    """Columns to the right of the player; negative: to the left."""
    down: int
    """Rows below the player; negative: above."""

    @property
    def distance(self) -> int:
        """Moves to it if nothing is in the way."""
        return max(abs(self.right), abs(self.down))


class Screen(NamedTuple):
    """NetHack's screen at one moment."""

    rows: list[list[Cell]]
    player: tuple[int, int] | None
    """Column and row of the screen, from 0; None while a menu, a text or a question hides it."""
    status: dict[str, int]
    message: str

    def symbol(self, column: int, row: int) -> str:
        cells = self.rows[row] if 0 <= row < len(self.rows) else []
        return cells[column].symbol if 0 <= column < len(cells) else " "

    def things(self) -> list[Thing]:
        """What the map shows besides floor, walls and the player, the nearest first; nothing without a player."""
        if self.player is None:
            return []
        found, (x, y) = [], self.player
        for row in MAP_ROWS:
            for column, cell in enumerate(self.rows[row] if row < len(self.rows) else []):
                what = None if (column, row) == (x, y) else self.classify(cell, column, row)
                if what is not None:
                    found.append(Thing(*what, cell.symbol, column, row, column - x, row - y))
        return sorted(found, key=lambda thing: (thing.distance, thing.row, thing.column))

    def classify(self, cell: Cell, column: int, row: int) -> tuple[str, str] | None:
        """Kind and name of what a character of the map stands for."""
        symbol = cell.symbol
        if symbol in STAIRS:
            return "stairs", STAIRS[symbol]
        if symbol in DOORS and cell.colour == YELLOW:
            return "door", DOORS[symbol]
        if symbol in "|-":
            return None
        if symbol == ".":
            beside = self.symbol(column - 1, row), self.symbol(column + 1, row)
            above = self.symbol(column, row - 1), self.symbol(column, row + 1)
            between = all(one in "|-" for one in beside) or all(one in "|-" for one in above)
            return ("door", "doorway") if between else None
        if symbol in FEATURES:
            return "feature", FEATURES[symbol]
        if symbol in ITEMS:
            return "item", ITEMS[symbol]
        if MONSTER.match(symbol):
            return ("pet" if cell.reverse else "monster"), LETTERS.get(symbol, f"monster of class {symbol}")
        return None

    def around(self) -> list[str]:
        """The part of the map around the player; empty without one."""
        if self.player is None:
            return []
        (x, y), (columns, rows) = self.player, CROP
        return [
            "".join(self.symbol(column, row) for column in range(x - columns, x + columns + 1))
            for row in range(y - rows, y + rows + 1)
        ]


def parse(captured: str, cursor: tuple[int, int] | None = None) -> Screen:
    """Read a screen that was captured with its colours. `cursor` is column and row, from 0."""
    rows = [cells(line) for line in captured.split("\n")]
    lines = ["".join(cell.symbol for cell in row).rstrip() for row in rows]
    bottom = "\n".join(line for number, line in enumerate(lines) if number in STATUS_ROWS)
    status: dict[str, int] = {}
    for name, value, most in STATUS.findall(bottom):
        status[NUMBERS[name]] = int(value)
        if most:
            status[f"max_{NUMBERS[name]}"] = int(most)
    player = None
    if "hp" in status and not OVERLAID.search("\n".join(lines[1:])):
        player = find_player(rows, cursor)
    return Screen(rows, player, status, lines[MESSAGE_ROW] if lines else "")


def find_player(rows: list[list[Cell]], cursor: tuple[int, int] | None) -> tuple[int, int] | None:
    """The player is where the cursor is, if the game waits for a move; else the first `@`."""
    if cursor is not None and cursor[1] in MAP_ROWS and cursor[1] < len(rows):
        row = rows[cursor[1]]
        if cursor[0] < len(row) and MONSTER.match(row[cursor[0]].symbol):
            return cursor
    places = (
        (column, number)
        for number in MAP_ROWS
        if number < len(rows)
        for column, cell in enumerate(rows[number])
        if cell.symbol == "@"
    )
    return next(places, None)


def cells(line: str) -> list[Cell]:
    """Split a captured line into characters with their colours."""
    found, colour, reverse, at = list[Cell](), None, False, 0
    for match in SGR.finditer(line):
        found += [Cell(symbol, colour, reverse) for symbol in line[at : match.start()]]
        at = match.end()
        for code in (match[1] or "0").split(";") if match[1] is not None else []:
            number = int(code or 0)
            if number == 0:
                colour, reverse = None, False
            elif number in (7, 27):
                reverse = number == 7
            elif 30 <= number <= 37:
                colour = number
            elif number == 39:
                colour = None
    return found + [Cell(symbol, colour, reverse) for symbol in line[at:]]
