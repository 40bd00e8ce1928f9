"""Tic-tac-toe over HTTP, with five opponents. The bootstrap of that name plays against it.

GET  /state                 the game
POST /move {"cell": 4}      put a mark on cell 0 to 8; the opponent answers at once; gives the game
POST /reset                 begin another game; one that is not over counts as lost; gives the new game
"""

import json
import threading
from collections.abc import Callable, Mapping
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from typing import Any

LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))
FREE = " "


def winner(board: list[str]) -> str | None:
    """X, O, `draw`, or None while the game goes on."""
    for a, b, c in LINES:
        if board[a] != FREE and board[a] == board[b] == board[c]:
            return board[a]
    return None if FREE in board else "draw"


def free_cells(board: list[str]) -> list[int]:
    return [cell for cell in range(9) if board[cell] == FREE]


def other(mark: str) -> str:
    return "O" if mark == "X" else "X"


def completing(board: list[str], mark: str) -> int | None:
    """A cell with which `mark` has three in a row."""
    for line in LINES:
        marks = [board[cell] for cell in line]
        if marks.count(mark) == 2 and FREE in marks:
            return line[marks.index(FREE)]
    return None


def play_random(board: list[str], mark: str, random: Random) -> int:
    return random.choice(free_cells(board))


def play_eager(board: list[str], mark: str, random: Random) -> int:
    """Take a win, else anything: it never blocks."""
    cell = completing(board, mark)
    return play_random(board, mark, random) if cell is None else cell


def play_wary(board: list[str], mark: str, random: Random) -> int:
    """Block a loss, else anything: it does not look for its own wins."""
    cell = completing(board, other(mark))
    return play_random(board, mark, random) if cell is None else cell


def play_basic(board: list[str], mark: str, random: Random) -> int:
    """Take a win, else block a loss, else anything."""
    for whose in (mark, other(mark)):
        cell = completing(board, whose)
        if cell is not None:
            return cell
    return play_random(board, mark, random)


@cache
def value(board: str, mark: str, turn: str) -> int:
    """What perfect play on both sides brings to `mark`: 1, 0 or -1."""
    end = winner(list(board))
    if end is not None:
        return 0 if end == "draw" else 1 if end == mark else -1
    values = [value(put(board, cell, turn), mark, other(turn)) for cell in free_cells(list(board))]
    return max(values) if turn == mark else min(values)


def put(board: str, cell: int, mark: str) -> str:
    return board[:cell] + mark + board[cell + 1 :]


def play_minimax(board: list[str], mark: str, random: Random) -> int:
    """Never loses. Among equally good cells any."""
    values = {cell: value(put("".join(board), cell, mark), mark, other(mark)) for cell in free_cells(board)}
    return random.choice([cell for cell in values if values[cell] == max(values.values())])


OPPONENTS = {
    "random": play_random, "eager": play_eager, "wary": play_wary, "basic": play_basic, "minimax": play_minimax,
}  # fmt: skip
"""From the weakest to the strongest."""


class Game:
    """Games against one opponent. X begins; the player is X where `first`."""

    def __init__(self, opponent: str, first: bool, seed: int):
        if opponent not in OPPONENTS:
            raise ValueError(f"there is no opponent {opponent!r}: choose one of {', '.join(OPPONENTS)}")
        self.opponent, self.you, self.random = opponent, "X" if first else "O", Random(seed)
        self.results: list[str] = []
        self.begin()

    def begin(self) -> None:
        self.board = [FREE] * 9
        if self.you == "O":
            self.answer()

    def answer(self) -> None:
        mark = other(self.you)
        self.board[OPPONENTS[self.opponent](self.board, mark, self.random)] = mark

    def result(self) -> str | None:
        end = winner(self.board)
        return None if end is None else "drawn" if end == "draw" else "won" if end == self.you else "lost"

    def move(self, cell: object) -> None:
        if self.result() is not None:
            raise ValueError("the game is over")
        if type(cell) is not int or cell not in range(9) or self.board[cell] != FREE:
            raise ValueError(f"cell {cell!r} can't be taken: the free ones are {free_cells(self.board)}")
        self.board[cell] = self.you
        if self.result() is None:
            self.answer()
        if (result := self.result()) is not None:
            self.results.append(result)

    def reset(self) -> None:
        if self.result() is None:
            self.results.append("lost")
        self.begin()

    def state(self) -> dict[str, Any]:
        result = self.result()
        return {
            "board": list(self.board),
            "free": free_cells(self.board) if result is None else [],
            "you": self.you,
            "opponent": self.opponent,
            "over": result is not None,
            "result": result,
            "results": list(self.results),
        }


def start(opponent: str = "basic", first: bool = True, seed: int = 0, port: int = 8000) -> ThreadingHTTPServer:
    """Serve a game on 127.0.0.1, in a thread, from now on."""
    game = Game(opponent, first, seed)
    return serve(game.state, {"/move": lambda body: game.move(body["cell"]), "/reset": lambda body: game.reset()}, port)


def serve(
    state: Callable[[], dict[str, Any]], posts: Mapping[str, Callable[[dict[str, Any]], None]], port: int
) -> ThreadingHTTPServer:
    """Serve a state on 127.0.0.1, in a thread: GET /state gives it, and so does a POST, after what it does.

    `posts`: what each path does with the body. A ValueError, KeyError or TypeError is answered with status 400.
    """
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        wbufsize = -1  # headers and body in one packet: two would wait for each other

        def do_GET(self) -> None:
            with lock:
                found = self.path == "/state"
                self.answer(200 if found else 404, state() if found else {"error": "there is /state only"})

        def do_POST(self) -> None:
            try:
                body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
                if self.path not in posts:
                    raise ValueError(f"there are {' and '.join(posts)} only")
                with lock:
                    posts[self.path](body)
                    self.answer(200, state())
            except (ValueError, KeyError, TypeError) as error:
                self.answer(400, {"error": str(error)})

        def answer(self, status: int, message: dict[str, Any]) -> None:
            data = json.dumps(message).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing: it would be taken for output of the block that is running."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 3600}, daemon=True).start()
    return server
