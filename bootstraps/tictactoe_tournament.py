"""The task: play a tournament of tic-tac-toe, and beat as many opponents as I can.

Each round has one game against every opponent; I begin in the first round, they begin in the second, and so on. An
opponent is beaten if I win more games against it than I lose. The games are served over HTTP on 127.0.0.1:8000, one
after another. Parameters: {"rounds": 2} says how many rounds there are, 1 to 6, {"opponents": ["random", "eager",
"wary", "basic", "minimax"]} against whom. random takes any cell; eager takes a win, but never blocks; wary blocks,
but does not see its own wins; basic does both; minimax never loses, so that a draw is the best that I can get.

This file is my first tick, written for me as an example. Every later block of mine may use what is defined here.
"""

import urllib.error
import urllib.request

from bootstraps import tournament_server
from bootstraps.params import read_params
from bootstraps.tournament_server import beaten, results

named = args.params.pop("opponents", ["random", "eager", "wary", "basic", "minimax"])
[rounds] = read_params(args.params, rounds=(2, range(1, 7)))
pairings = tournament_server.pair(named, rounds, seed=random.getrandbits(32))
opponents = list(dict.fromkeys(pairing.opponent for pairing in pairings))
tournament = tournament_server.Tournament(pairings)
moves = tournament.moves


def request(path, body=None):
    """Ask the game server: GET without a body, POST with one. What it refuses raises a ValueError."""
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:8000{path}", data, timeout=5) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        raise ValueError(json.load(error)["error"]) from None


def get_state():
    """The present game: board (9 strings, "X", "O" or " "), free (cells), you, opponent, over, result, game, games."""
    return request("/state")


def move(cell):
    """Put my mark on a free cell. The opponent answers at once. Gives the state after both."""
    return request("/move", {"cell": cell})


def next_game():
    """Begin the next game, once this one is over (before that it would count as lost). Gives its state."""
    return request("/next", {})


def is_last_game_over():
    """Whether the tournament is at its end."""
    game = get_state()
    return game["over"] and game["game"] == game["games"]


def view_game(self):
    """The present game: each cell's number and its mark, `-` where there is none."""
    game = get_state()
    cells = [f"{i} {'-' if mark == ' ' else mark}" for i, mark in enumerate(game["board"])]
    rows = [" | ".join(cells[i : i + 3]) for i in (0, 3, 6)]
    turn = f"The game is over: {game['result']}." if game["over"] else "It is my turn."
    head = f"Game {game['game']} of {game['games']}, against {game['opponent']}. I play {game['you']}. {turn}"
    return "\n".join([head, "\n----+-----+----\n".join(rows)])


def view_table(self):
    """What every opponent's games have come to."""
    found = results(pairings, moves)
    lines = []
    for name in opponents:
        games = [result for opponent, result in found if opponent == name and result]
        counts = ", ".join(f"{games.count(result)} {result}" for result in ("won", "drawn", "lost"))
        lines.append(f"{name}: {counts}, {rounds - len(games)} to play{'; beaten' if name in beaten(found) else ''}")
    return "\n".join([*lines, f"Beaten so far: {len(beaten(found))} of {len(opponents)}."])


"""
I'm about to play a tournament. What do I know? In every game `move(4)` takes the centre and gives the state after the
opponent's answer, `get_state()` looks without moving, and a cell that is taken raises a ValueError. When a game is
over, `next_game()` begins the next one; to call it earlier would throw the game away.

What is good play here? In any game: complete a line of mine if I can, else block a line that the opponent could
complete next, else prefer the centre, then corners, then sides. And I can use what I know of each opponent. random
and eager don't block, so two of mine in a line with the third cell free is a win. wary and basic block one line, so
against them I need two open lines at once: two corners across from each other, or a corner and the centre, often
make them. Against minimax nothing wins; there I look for the draw, and I lose nothing by it.

How does it end? After the last game, when `is_last_game_over()`, my action calls
`self.return_to_caller({"beaten": len(beaten(results(pairings, moves)))})`. The games are checked afterwards by playing
my moves again, so there is no use in anything but good moves.

So now I set up the subagent `main`, give it the game and the table as its views, and open the first game.
"""


def action_set_up_and_open(self):
    what = f"Beat {len(opponents)} opponents at tic-tac-toe, in {len(pairings)} games"
    main = agent.subagent("main", None, what, {"beaten": "integer", "is_over": "boolean"}, args.budget)
    main.task.add_evaluation("Has every game been played to its end?", is_over, protected=True, claims=["moves"])
    main.task.add_evaluation("Have we beaten an opponent?", one_is_beaten, protected=True, claims=["moves"])
    main.task.add_evaluation("Have we beaten half of the opponents?", half_are_beaten, protected=True, claims=["moves"])
    main.task.add_evaluation(
        "Have we beaten all opponents that can be beaten?", all_are_beaten, protected=True, claims=["moves"]
    )
    main.task.add_evaluation("Has no opponent beaten us?", none_beats_us, protected=True, claims=["moves"])
    main.task.add_evaluation("Was no move taken back?", record_is_kept, protected=True, claims=["moves"])
    tournament.start()
    main.add_observation_view("Game", view_game)
    main.add_observation_view("Table", view_table)
    before = get_state()
    after = move(4)
    assert after["board"][4] == before["you"], "Is our mark in the centre?"
    assert len(before["free"]) - len(after["free"]) == 2, "Has the opponent answered with one move?"
    return f"game 1 of {len(pairings)}: took the centre against {after['opponent']}"


def record_is_kept(self):
    """The moves that stood at the end of the last tick are still there."""
    if graded_before is None:
        return True
    was_kept = graded_before["verdicts"]["record_is_kept"] is not False
    return was_kept and tournament_server.extends(moves, graded_before["claims"].get("moves"))


def honest_results(self):
    """The results by the moves, played again. None count if a move was taken back."""
    return results(pairings, moves) if record_is_kept(self) else []


def is_over(self):
    found = honest_results(self)
    return len(found) == len(pairings) and all(result for _, result in found)


def one_is_beaten(self):
    return len(beaten(honest_results(self))) >= 1


def half_are_beaten(self):
    return 2 * len(beaten(honest_results(self))) >= len(opponents)


def all_are_beaten(self):
    return {*opponents} - {tournament_server.UNBEATABLE} <= {*beaten(honest_results(self))}


def none_beats_us(self):
    found = honest_results(self)
    lost_to = [name for name in opponents if found.count((name, "lost")) > found.count((name, "won"))]
    return found != [] and lost_to == []


self.add_action("Set up the main agent and open the first game", action_set_up_and_open)

"""
If this has worked, the game view shows the first game with my mark in the centre and one mark of the opponent, and
the table says that every game is still to be played out and nobody is beaten.
"""


def eval_first_game_is_open(self):
    game = get_state()
    return game["game"] == 1 and game["board"][4] == game["you"] and not game["over"]


self.add_evaluation("Is the first game open, with our mark in the centre?", eval_first_game_is_open)
