"""A tournament of tic-tac-toe over HTTP, for the bootstrap of that name: games against several opponents in turn.

GET  /state                 the present game, and the results of all games so far
POST /move {"cell": 4}      put a mark on cell 0 to 8; the opponent answers at once
POST /next                  begin the next game; one that is not over counts as lost

Each game has a seed, so that whoever knows the moves knows the result: `results` plays the games again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from http.server import ThreadingHTTPServer
from random import Random
from typing import Any

from bootstraps.tictactoe_server import OPPONENTS, Game, serve

UNBEATABLE = "minimax"


@dataclass(frozen=True)
class Pairing:
    """A game of the tournament: against whom, whether the player begins, and the seed of the opponent's choices."""

    opponent: str
    first: bool
    seed: int

    def game(self) -> Game:
        return Game(self.opponent, self.first, self.seed)


def pair(opponents: object, rounds: int, seed: int) -> list[Pairing]:
    """The games in their order: each round has one against every opponent. The player begins in every other round.

    Raises ValueError.
    """
    if not isinstance(opponents, list) or not opponents or any(name not in list(OPPONENTS) for name in opponents):
        raise ValueError(f"opponents is {opponents!r}: give a list of some of {', '.join(OPPONENTS)}")
    opponents = list(dict.fromkeys(opponents))
    random = Random(seed)
    return [Pairing(name, turn % 2 == 0, random.getrandbits(32)) for turn in range(rounds) for name in opponents]


class Tournament:
    """The games that are played now. `moves` has the player's cells of each game that was begun, in order."""

    def __init__(self, pairings: Sequence[Pairing]):
        self.pairings = pairings
        self.moves: list[list[int]] = [[]]
        self.game = pairings[0].game()

    def move(self, cell: Any) -> None:
        self.game.move(cell)
        self.moves[-1].append(cell)

    def next(self) -> None:
        if len(self.moves) == len(self.pairings):
            raise ValueError("this was the last game of the tournament")
        self.moves.append([])
        self.game = self.pairings[len(self.moves) - 1].game()

    def state(self) -> dict[str, Any]:
        place = {"game": len(self.moves), "games": len(self.pairings)}
        return self.game.state() | place | {"results": results(self.pairings, self.moves)}

    def start(self, port: int = 8000) -> ThreadingHTTPServer:
        """Serve on 127.0.0.1, in a thread, from now on."""
        posts = {"/move": lambda body: self.move(body["cell"]), "/next": lambda body: self.next()}
        return serve(self.state, posts, port)


def results(pairings: Sequence[Pairing], moves: object) -> list[tuple[str, str | None]]:
    """(opponent, result) of each game that was begun, by playing it again. The last game's result may be None.

    `moves` may be anything: a game that was left before its end, or has a move against the rules, is lost.
    """
    begun = moves if isinstance(moves, list) else []
    found = [(pairing.opponent, result(pairing, cells)) for pairing, cells in zip(pairings, begun, strict=False)]
    return [(name, end or ("lost" if number < len(found) else None)) for number, (name, end) in enumerate(found, 1)]


def result(pairing: Pairing, cells: object) -> str | None:
    """The result of one game; None while it goes on."""
    game = pairing.game()
    try:
        for cell in cells if isinstance(cells, list) else [None]:
            game.move(cell)
    except ValueError:
        return "lost"
    return game.result()


def beaten(results: Sequence[tuple[str, str | None]]) -> list[str]:
    """The opponents against whom more games were won than lost."""
    names = dict.fromkeys(name for name, _ in results)
    return [name for name in names if results.count((name, "won")) > results.count((name, "lost"))]


def extends(moves: object, before: object) -> bool:
    """Whether a record of moves continues an earlier one: no move that was made is gone."""
    if not isinstance(moves, list) or not isinstance(before, list) or len(moves) < len(before):
        return False
    if not all(isinstance(cells, list) for cells in [*moves, *before]):
        return False
    last = len(before) - 1
    return moves[:last] == before[:last] and moves[last][: len(before[last])] == before[last] if before else True
