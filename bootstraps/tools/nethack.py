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


class WeaveNethack(Terminal):
    """A game of NetHack: `nethack = WeaveNethack(self)`, later `self.tools["nethack"]`.

    nethack.send_keys("h") sends a key, nethack.send_keys("lll") three; "Escape", "Enter", "C-d" are named keys.
    `nethack.pane.capture_pane()` gives the lines of the screen.
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

    def render(self, agent: "Subagent | None" = None) -> str:
        """The screen, the last keys with whether they changed it, and a list of keys."""
        moves = [
            f"{keys!r}{'' if changed else ' (nothing changed)'}" for keys, changed in self.moves[-SHOWN_KEYS:]
        ]
        return f"{super().render(agent)}\nLast keys sent: {', '.join(moves) or 'none'}\n{KEYS}"


def make_playground() -> None:
    """Make the files and folders that the game needs, if they are missing."""
    with contextlib.suppress(OSError):  # a read-only installation has them
        for folder in ("save", "dumps"):
            os.makedirs(os.path.join(PLAYGROUND, folder), exist_ok=True)
        for file in ("perm", "record", "logfile", "xlogfile"):
            open(os.path.join(PLAYGROUND, file), "a").close()
