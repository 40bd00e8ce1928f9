"""Tic-tac-toe for the scripted policy: boards as nine characters, and the value of a move."""

from functools import lru_cache

EMPTY = " "
LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))


def other(mark: str) -> str:
    """The opponent's mark."""
    return "O" if mark == "X" else "X"


def free(board: str) -> list[int]:
    """Squares without a mark, 0 to 8."""
    return [square for square, mark in enumerate(board) if mark == EMPTY]


def put(board: str, square: int, mark: str) -> str:
    """The board after a move."""
    return board[:square] + mark + board[square + 1 :]


def winner(board: str) -> str | None:
    """The mark that has a line."""
    for a, b, c in LINES:
        if board[a] != EMPTY and board[a] == board[b] == board[c]:
            return board[a]
    return None


@lru_cache(maxsize=8192)
def value(board: str, square: int, mark: str) -> float:
    """The expected result of a move for `mark`: 1 a win, 0 a draw, -1 a loss.

    The opponent takes a win, blocks a loss and otherwise plays at random (the server's `basic`).
    """
    after = put(board, square, mark)
    if winner(after):
        return 1.0
    replies = _replies(after, other(mark))
    if not replies:
        return 0.0
    return sum(_after_reply(put(after, reply, other(mark)), mark) for reply in replies) / len(replies)


def _after_reply(board: str, mark: str) -> float:
    if winner(board):
        return -1.0
    return max((value(board, square, mark) for square in free(board)), default=0.0)


def _replies(board: str, mark: str) -> list[int]:
    """Squares among which the basic opponent chooses."""
    for player in (mark, other(mark)):
        urgent = [square for square in free(board) if winner(put(board, square, player))]
        if urgent:
            return urgent[:1]
    return free(board)


def ranked(board: str, mark: str) -> list[tuple[float, int]]:
    """(value, square) of every legal move, best first."""
    return sorted(((value(board, square, mark), square) for square in free(board)), key=lambda m: (-m[0], m[1]))
