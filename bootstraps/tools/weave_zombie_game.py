"""Weir Valley: a game of survival, in words. Reach the radio tower, call for help, and be alive when it comes."""

import random
from typing import TYPE_CHECKING, Any

from .window import Window
from .zombie_game import Game
from .zombie_town import INTRO, TOWN

if TYPE_CHECKING:
    from weavegen.box.api import Subagent

SHOWN = 3
"""Commands whose outcome the view shows."""


class WeaveZombieGame(Window):
    """A survival game: `game = WeaveZombieGame(self)`, later `self.tools["zombie_game"]`.

    `game.send_command("help")` tells the goal and all commands. `game.state` is a dict: place, day, hour,
    health, hunger, inventory, zombies_here, zombies_killed, locations_explored, survival_days, over, won, result.
    """

    def __init__(self, agent: "Subagent"):
        self.command_history: list[str] = []
        self.begin()
        super().__init__(agent, "WeaveZombieGame", "zombie_game")

    def begin(self) -> None:
        self.game = Game(random.getrandbits(64))
        self.log = [INTRO]

    @property
    def state(self) -> dict[str, Any]:
        """How the game stands; a copy."""
        return self.game.state()

    @property
    def last_state(self) -> dict[str, Any]:
        """The same as `state`."""
        return self.state

    @property
    def session(self) -> Game | None:
        """The game that is being played; None once the tool is closed."""
        return self.game if self.is_open else None

    def send_command(self, command: str) -> str:
        """Do one thing, such as "search", "go square" or "restart", and tell what happened."""
        self.check_open()
        if not isinstance(command, str):
            raise TypeError(f"a command is a string, such as 'go square', not {command!r}")
        self.command_history.append(command)
        if command.strip().lower() == "restart":
            self.begin()
            return INTRO
        answer = self.game.command(command)
        self.log = [*self.log, f"> {command}\n{answer}"][-SHOWN:]
        return answer

    def render(self, agent: "Subagent | None" = None) -> str:
        """How things stand, and what the last commands brought."""
        game = self.game
        where = TOWN[game.place]
        lines = [*self.log, "", game.summary(), f"{game.place}: {where.text}"]
        lines.append(f"Zombies here: {game.zombies[game.place]}. Barricade: {game.walls[game.place]}.")
        lines.append(f"Ways: {', '.join(where.exits)}. Commands: {', '.join(sorted(game.commands))}, restart.")
        if game.result != "playing":
            lines.append(f"The game is over: {game.result}.")
        return "\n".join(lines)
