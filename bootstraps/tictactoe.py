"""The task: play one game of tic-tac-toe, and win it if that can be done.

The game is served over HTTP on 127.0.0.1:8000. The cells are numbered 0 to 8, row by row from the top left.
Against whom, and who begins, is set by the parameters, such as {"opponent": "basic", "first": true}. Opponents:
random (any free cell), basic (takes a win, blocks a loss, else any) and minimax (never loses).

This file is my first tick, written for me as an example. Every later block of mine may use what is defined here.
"""

import json
import random
import urllib.error
import urllib.request

from bootstraps.tictactoe_server import start

opponent = args.params.get("opponent", "basic")
server = start(opponent, first=args.params.get("first", True), seed=random.getrandbits(32))


def request(path, body=None):
    """Ask the game server: GET without a body, POST with one. A refused move raises a ValueError."""
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:8000{path}", data, timeout=5) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        raise ValueError(json.load(error)["error"]) from None


def get_state():
    """The game: board (9 strings, "X", "O" or " "), free (cells), you (my mark), over, result, results."""
    return request("/state")


def move(cell):
    """Put my mark on a free cell. The opponent answers at once. Gives the state after both."""
    return request("/move", {"cell": cell})


def view_board(self):
    """The board as text: each cell's number and its mark, `-` where there is none."""
    game = get_state()
    cells = [f"{i} {'-' if mark == ' ' else mark}" for i, mark in enumerate(game["board"])]
    rows = [" | ".join(cells[i : i + 3]) for i in (0, 3, 6)]
    turn = f"The game is over: {game['result']}." if game["over"] else "It is my turn."
    return "\n----+-----+----\n".join(rows) + f"\nI play {game['you']} against {game['opponent']}. {turn}"


"""
I'm about to play tic-tac-toe. What do I know? A move is `move(4)`, which takes the centre and gives the state
after the opponent's answer; `get_state()` looks without moving. A cell that is taken, or a move after the end,
raises a ValueError, so I pick from `get_state()["free"]`.

What would good play be? First, complete a line of mine if I can. Second, block a line that the opponent could
complete next. Third, prefer the centre, then corners, then sides.

How does it end? The task is about the first game only: starting over with /reset counts as lost. Once the state
says that the game is over, my action reads the result from the server, `result = get_state()["results"][0]`, and
calls `self.return_to_caller({"result": result})`. The schema allows "won", "drawn" and "lost", nothing else.

So now I set up the subagent `main`, give it the board as its view, and open with the centre, or with a corner
where the opponent has taken that.
"""


def action_set_up_and_open(self):
    schema = {"result": {"type": "string", "enum": ["won", "drawn", "lost"]}}
    main = agent.subagent("main", None, f"Win a game of tic-tac-toe against {opponent}", schema, args.budget)
    main.task.add_evaluation("Did we win the game?", is_won)
    main.task.add_evaluation("Is the game over?", is_over)
    main.add_observation_view("Board", view_board)
    before = get_state()
    cell = 4 if 4 in before["free"] else 0
    after = move(cell)
    assert after["board"][cell] == before["you"], "Is our mark on the cell that we chose?"
    assert len(before["free"]) - len(after["free"]) == 2, "Has the opponent answered with one move?"
    return f"took cell {cell}"


def is_won(self):
    return get_state()["results"][:1] == ["won"]


def is_over(self):
    return len(get_state()["results"]) > 0


self.add_action("Set up the main agent and make the opening move", action_set_up_and_open)

"""
If this has worked, the board shows my mark in the centre or in the top left corner, and just as many marks of
the opponent as of mine, or one more where the opponent began. The game is not over yet.
"""


def eval_opening_was_played(self):
    game = get_state()
    return game["you"] in game["board"] and not game["over"]


self.add_evaluation("Is our opening move on the board, with the game still open?", eval_opening_was_played)
