"""The task: survive in Weir Valley, call for help from the radio tower, and be alive when it comes.

A game in words, with a goal, a clock and a town full of zombies. The parameter {"minutes": 60} limits the time
that I have; the town's secrets and its dice come from the trace's seed.

This file is my first tick, written for me as an example. Every later block of mine may use what is defined here.
"""

import json

from tools.weave_zombie_game import WeaveZombieGame

minutes = float(args.params.get("minutes", args.budget))
games = []


def command(text):
    """Do one thing in the game, and get told what came of it."""
    return agent.agents["main"].tools["zombie_game"].send_command(text)


def state():
    """How my game stands: place, day, hour, health, hunger, inventory, zombies_here, exits, over, result, ..."""
    return games[0].state()


def view_state(self):
    """The state as JSON, for thoughts that need numbers."""
    return json.dumps(state())


"""
I'm about to play a game that kills those who don't plan. What do I know? `command("help")` tells the goal and all
commands, and takes no time. Help must be called before the evening of day 3, so there are about sixty hours, and a
walk costs one of them.

What is the plan? Three things have to be found: the key to the tower's gate (police), a can of fuel (petrol
station), and a fuse (school, hardware store or farm). Then to the tower: repair, call, and hold out for six hours.

What keeps me alive on the way? To eat when hunger nears 8, to dress wounds while there are bandages, to fight only
few zombies at a time, and to leave where there are many. Noise draws them in, so I search a place, and go.

How does it end? When the state says "over", my action calls
`self.return_to_caller({"result": state()["result"], "zombies_killed": state()["zombies_killed"]})`. The
town's first game counts: after `restart` I'd play another one, and `state()` would still tell of the first.

Now I open the game, read the help, and search the flat that I'm in.
"""


def action_open_the_game(self):
    results = ["rescued", "dead", "left behind", "too late"]
    schema = {"result": {"type": "string", "enum": results}, "zombies_killed": "integer"}
    main = agent.subagent("main", None, "Survive in Weir Valley and be rescued from the tower", schema, minutes)
    game = WeaveZombieGame(main)
    games.append(game.session)
    main.add_observation_view("State", view_state)
    main.task.add_evaluation("Have we been rescued?", is_rescued)
    main.task.add_evaluation("Are we alive?", is_alive)
    help_text = game.send_command("help")
    assert "go PLACE" in help_text, "Does the help name the commands?"
    told = game.send_command("search")
    assert state()["hour"] == 9, "Has the search taken an hour?"
    return told


def is_rescued(self):
    return state()["won"]


def is_alive(self):
    return state()["health"] > 0


self.add_action("Open the game, read the help and search the flat", action_open_the_game)

"""
If this has worked, it is nine o'clock, I'm still in the flat and unhurt, and what lay here is in my inventory.
"""


def eval_flat_was_searched(self):
    now = state()
    return now["place"] == "flat" and now["health"] == 10 and "cloth" in now["inventory"]


self.add_evaluation("Did the search of the flat bring cloth, and no wound?", eval_flat_was_searched)
