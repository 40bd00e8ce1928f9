"""The task: go down into the dungeon of NetHack, as deep as the parameter {"depth": 4} asks, and stay alive.

NetHack has to be installed on the host: the package nethack-console on Debian. Its dice are its own, so that equal
seeds do not give equal games.

This file is my first tick, written for me as an example. Every later block of mine may use what is defined here.
"""

import re

from tools.nethack import WeaveNethack

wanted = int(args.params.get("depth", 4))


def game():
    """The tool: send_keys(key), send_commands([key, ...]), pane.capture_pane()."""
    return agent.agents["main"].tools["nethack"]


def status():
    """What the bottom line says, as whole numbers: depth, hp, turn where it is shown. Empty if it is hidden."""
    names = {"Dlvl": "depth", "HP": "hp", "T": "turn"}
    text = "\n".join(game().pane.capture_pane())
    return {names[name]: int(value) for name, value in re.findall(r"\b(Dlvl|HP|T):(\d+)", text)}


def is_running():
    """Whether the game goes on. After a death it asks some questions, and ends."""
    return game().pane.look().alive


def deepest():
    """The deepest level that any look at the status has shown so far."""
    main = agent.agents["main"]
    main.update_cache("deepest", max(main.get_cache("deepest") or 1, status().get("depth", 1)))
    return main.get_cache("deepest")


"""
I'm about to play NetHack. What do I see? A map of characters: `@` is me, letters are creatures, `.` is floor, `#`
a corridor, `|`, `-` and `+` are walls and doors, `<` and `>` stairs. The line at the bottom has the level (Dlvl)
and my hit points (HP).

What do I do? One key is one move; `game().send_keys("l")` goes east, and "L" runs there. If `>` is on the map,
"_", ">" and "." travel to it, and ">" goes down. Where the screen says "--More--" the game waits for "Enter", and
what it asks I leave with "Escape". Few keys in a tick: after each of them the world may have changed.

How does it end? When `deepest()` has reached the level asked for, or the game is over, my action calls
`self.return_to_caller({"depth": deepest(), "alive": is_running()})`.

Now I open the game, read away what it says first, and look at the status.
"""


def action_open_the_game(self):
    schema = {"depth": "integer", "alive": "boolean"}
    main = agent.subagent("main", None, f"Reach level {wanted} of NetHack's dungeon alive", schema, args.budget)
    nethack = WeaveNethack(main)
    main.task.add_evaluation(f"Has level {wanted} been reached?", is_deep_enough)
    main.task.add_evaluation("Does the game go on?", game_goes_on)
    for _ in range(10):
        if "--More--" not in nethack.pane.capture_pane():
            break
        nethack.send_keys("Enter")
    assert status().get("hp", 0) > 0, "Does the status show hit points?"
    return status()


def is_deep_enough(self):
    return deepest() >= wanted


def game_goes_on(self):
    return is_running()


self.add_action("Open the game and look at the status", action_open_the_game)

"""
If this has worked, the screen shows a map with me in it, and the status says level 1.
"""


def eval_is_on_the_first_level(self):
    return status().get("depth") == 1


self.add_evaluation("Are we on the first level?", eval_is_on_the_first_level)
