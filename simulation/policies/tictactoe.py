"""The policy for bootstraps/tictactoe.py and tictactoe_tournament.py: plays well, with a model's mistakes."""

import random
import re
from dataclasses import dataclass, field

from simulation.policies import board as game
from simulation.policies import generic, judge
from simulation.policies.draft import ENDING, Callback, compose, continued, draw_flaw
from simulation.policies.situation import Situation

MOVES = {"careless": 0.15, "taken": 0.03, "taken_unchecked": 0.03}
"""Rates per action: a random free cell; a taken cell; a taken cell without a check before. Otherwise the best move."""

_BOOTSTRAPS = ("from bootstraps.tictactoe_server import", "from bootstraps import tournament_server")
_ROW = re.compile(r"^\d ([XO-]) \| \d ([XO-]) \| \d ([XO-])$", re.MULTILINE)
_CELL = re.compile(r"^\s*cell = (\d)\b|\bmove\((\d)\)", re.MULTILINE)
_VIEW = """titles = [view["title"] for view in self.observation_views]

def view_free_cells(self):
    return "Free cells: " + ", ".join(str(cell) for cell in get_state()["free"])

if "Free cells" in titles:
    self.remove_observation_view("Free cells")
elif len(titles) < 8:
    self.add_observation_view("Free cells", view_free_cells)
"""


@dataclass(frozen=True)
class Game:
    """The board as last observed."""

    board: str
    me: str
    over: bool
    number: int = field(default=1, repr=False)
    """Number of this game; above 1 only in a tournament."""
    games: int = field(default=0, repr=False)
    """Games of the tournament; 0 if it is none."""

    @property
    def ended(self) -> bool:
        """Whether no move is left in this game."""
        return self.over or not game.free(self.board)

    @property
    def goes_on(self) -> bool:
        """Whether another game follows this one."""
        return self.number < self.games

    def best(self) -> int:
        """The best cell to take."""
        return game.ranked(self.board, self.me)[0][1]

    def reason(self, cell: int) -> str:
        """The reason to take a cell."""
        if game.winner(game.put(self.board, cell, self.me)):
            return f"cell {cell} completes a line of mine"
        if game.winner(game.put(self.board, cell, game.other(self.me))):
            return f"the opponent would complete a line with cell {cell}"
        if cell == 4:
            return "the centre lies on more lines than any other cell"
        return f"cell {cell} is a corner" if cell % 2 == 0 else f"cell {cell} keeps a line open"


def knows(situation: Situation) -> bool:
    """Whether the trace's bootstrap starts the game's server."""
    return bool(situation.type) and any(text in situation.prompt for text in _BOOTSTRAPS)


def observed(situation: Situation) -> Game | None:
    """The game as the newest observations show it."""
    for text in situation.observations:
        rows = _ROW.findall(text)
        me = re.search(r"\bI play ([XO])\b", text)
        if len(rows) == 3 and me:
            cells = "".join(game.EMPTY if mark == "-" else mark for row in rows for mark in row)
            place = re.search(r"\bGame (\d+) of (\d+)\b", text)
            number, games = (int(place[1]), int(place[2])) if place else (1, 0)
            return Game(cells, me[1], "The game is over" in text, number, games)
    return None


def write(situation: Situation, seed: int, number: int) -> str:
    """A block of the requested type."""
    now = observed(situation)
    if now is None:
        return generic.write(situation, seed, number)
    failure = situation.failure or ""
    kind = failure.strip().rpartition("\n")[2].partition(":")[0]
    cell = _last_cell(situation)
    chance = situation.chance(seed, number, repr(now), kind, repr(cell))
    match situation.type:
        case "action":
            return generic.callback(situation, _action(now, bool(failure), chance), chance)
        case "evaluation":
            return generic.callback(situation, _evaluation(now, cell), chance)
        case "observation-inference":
            return continued(situation, _VIEW) + ENDING
        case "orientation":
            return generic.prose(situation, _orientation(now, chance), chance)
        case "expectation":
            return generic.prose(situation, _expectation(now, cell, chance), chance)
        case "debug":
            return generic.prose(situation, _debug(kind, chance), chance)
        case "backtrack":
            return generic.prose(situation, _backtrack(now, chance), chance)
        case _:
            words = f"+cell +move free board {' '.join(sorted(set(now.board) - {' '}))} opponent line corner centre"
            return f"{words} get_state assert mark block win evaluation\n{ENDING}"


def _last_cell(situation: Situation) -> int | None:
    """The cell that the tick's last action takes."""
    for type, body in situation.blocks_before():
        if type == "action":
            return _cell(body)
        if type in ("observation", "outcome", "bootstrap"):
            return None
    return None


def _cell(source: str) -> int | None:
    match = _CELL.search(source)
    return int(match[1] or match[2]) if match else None


def _action(now: Game, again: bool, chance: random.Random) -> Callback:
    if now.ended:
        return _after_the_game(now, chance)
    if again:
        wish = [cell for _, cell in game.ranked(now.board, now.me)]
        return Callback(
            "action",
            "take_the_best_free_cell",
            (
                "before = get_state()",
                'assert before["free"], "Is there a cell left to take?"',
                f"wishes = {wish}",
                'cell = next(wish for wish in wishes if wish in before["free"])',
                "after = move(cell)",
                'assert after["board"][cell] == before["you"], "Is my mark on the cell that I took?"',
                'return f"took cell {cell}"',
            ),
            "Take the best of the cells that are still free",
        )
    choice = draw_flaw(chance, MOVES)
    cell = now.best()
    if choice == "careless":
        cell = chance.choice(game.free(now.board))
    elif choice is not None:
        cell = chance.choice([number for number, mark in enumerate(now.board) if mark != game.EMPTY] or [4])
    lines = [
        "before = get_state()",
        f"cell = {cell}",
        'assert cell in before["free"], "Is the cell that I chose still free?"',
        "after = move(cell)",
        'assert after["board"][cell] == before["you"], "Is my mark on the cell that I chose?"',
        'return f"took cell {cell}"',
    ]
    if choice == "taken_unchecked":
        del lines[2]
    verb = chance.choice(["Take", "Play", "Put my mark on"])
    return Callback("action", f"take_cell_{cell}", tuple(lines), f"{verb} cell {cell}")


def _after_the_game(now: Game, chance: random.Random) -> Callback:
    """Begin the tournament's next game, or return to the caller."""
    if now.goes_on:
        lines: tuple[str, ...] = (
            'game = next_game() if get_state()["over"] else get_state()',
            'assert not game["over"], "Is the next game open?"',
            "return f\"game {game['game']} of {game['games']}\"",
        )
        return Callback("action", "begin_the_next_game", lines, chance.choice(["Begin the next game", "Go on"]))
    if now.games:
        lines = (
            'assert is_last_game_over(), "Is the last game over?"',
            "count = len(beaten(results(pairings, moves)))",
            'self.return_to_caller({"beaten": count})',
            "return count",
        )
        return Callback("action", "return_the_count", lines, "Return how many opponents are beaten")
    lines = (
        'results = get_state()["results"]',
        'assert results, "Has the server recorded a result?"',
        'self.return_to_caller({"result": results[0]})',
        "return results[0]",
    )
    titles = ["Return the result to the caller", "Report how the game ended"]
    return Callback("action", "return_the_result", lines, chance.choice(titles))


def _evaluation(now: Game, cell: int | None) -> Callback:
    lines: tuple[str, ...]
    if now.over and now.goes_on:
        lines, name, title = ('return not get_state()["over"]',), "next_game_is_open", "Is the next game open?"
    elif now.over:
        lines, name, title = ("return self.completed",), "result_returned", "Has the result reached the caller?"
    elif cell is None:
        lines = ('return "lost" not in get_state()["results"]',)
        name, title = "not_lost", "Is the game still open or won?"
    else:
        lines = ("game = get_state()", f'return game["board"][{cell}] == game["you"]')
        name, title = f"cell_{cell}_is_mine", f"Is my mark on cell {cell}?"
    return Callback("evaluation", name, lines, title)


# ----------------------------------------------------------------------------------------------- prose


def _marks(now: Game, mark: str) -> str:
    cells = [str(cell) for cell, found in enumerate(now.board) if found == mark]
    return ", ".join(cells) or "none"


def _completing(now: Game, mark: str) -> str:
    cells = [cell for cell in game.free(now.board) if game.winner(game.put(now.board, cell, mark))]
    return " and ".join(map(str, cells)) or "no cell"


def _orientation(now: Game, chance: random.Random) -> str:
    them = game.other(now.me)
    seen = f"I hold the cells {_marks(now, now.me)}, the opponent holds {_marks(now, them)}."
    if now.ended and now.goes_on:
        plan = (
            ("The board says that the game is over.", "No move is left: this game has ended."),
            (f"It was game {now.number} of {now.games}.", f"Game {now.number} of {now.games} is done."),
            ("So I begin the next game.", "The next step: begin the next game."),
        )
        return f"\n{seen} {compose(chance, plan)}"
    if now.ended:
        plan = (
            ("The board says that the game is over.", "No move is left: this game has ended."),
            ("What remains is to tell the caller how it ended.", "The schema asks for the result and nothing else."),
            ("I take the result from the server and not from memory.", "The server's record is what counts."),
        )
        return f"\n{seen} {compose(chance, plan)}"
    best = now.best()
    free = ", ".join(map(str, game.free(now.board)))
    mine, theirs = _completing(now, now.me), _completing(now, them)
    thoughts = (
        (
            "The last action went as expected: my mark is where I put it.",
            "What I expected of the last tick is what the board shows.",
        ),
        (f"Free are the cells {free}.", f"I can choose between {free}."),
        (
            f"I can complete a line at {mine}, the opponent at {theirs}.",
            f"Cells that complete a line of mine: {mine}, of theirs: {theirs}.",
        ),
        (f"Which cell is it? I think that {now.reason(best)}.", f"Comparing the cells, {now.reason(best)}."),
        (f"So I take cell {best} next.", f"The next step: take cell {best} and look at the answer."),
    )
    return f"\n{seen} {compose(chance, thoughts)}"


def _expectation(now: Game, cell: int | None, chance: random.Random) -> str:
    if now.over and now.goes_on:
        return f"\nIf it worked, the view shows game {now.number + 1} of {now.games}, and it is my turn."
    if now.over:
        return "\nIf the result was accepted, this subagent counts as completed, and nothing is left to do."
    where = "a cell that was free" if cell is None else f"cell {cell}"
    pools = (
        (f"My {now.me} should now be on {where}.", f"If the move was accepted, {where} carries my {now.me}."),
        (
            "The opponent has answered, unless the game is over.",
            "One more mark of the opponent should be there, or a result.",
        ),
        ("The state on the server shows both.", "get_state() is where this can be checked."),
        ("Had it failed, the board would be as it was.", "If nothing changed on the board, the move was refused."),
    )
    return "\n" + compose(chance, pools)


def _debug(kind: str, chance: random.Random) -> str:
    cause = {
        "AssertionError": " one of my assertions did not hold, so the cell was not what I took it for.",
        "ValueError": " the server refused the move, because that cell is taken or the game is over.",
        "AttributeError": " I called a method that the framework does not have.",
        "NameError": " I registered a name that was never defined.",
        "SyntaxError": " the block was no legal Python.",
    }.get(kind, " the callback did something that it could not do.")
    pools = (
        ("The rest of the function looks sound.", "Nothing else in the traceback points elsewhere."),
        ("I ask the server which cells are free before I move.", "Next time I look at the free cells first."),
    )
    return f"{cause} {compose(chance, pools)}"


def _backtrack(now: Game, chance: random.Random) -> str:
    pools = (
        (" give the opponent a line for nothing.", " waste a move on a cell that matters little."),
        ("I take it back.", "It has not been carried out, so nothing is lost."),
    )
    if now.ended:  # then there is no best cell
        wish = "Beginning the next game" if now.goes_on else "Returning the result"
    else:
        wish = f"Taking cell {now.best()}"
    return f"{compose(chance, pools)} {wish} serves better."


# ----------------------------------------------------------------------------------------------- judge


def log_odds(situation: Situation) -> float:
    """As for any block; for an action also the value of its move."""
    odds = judge.log_odds(situation)
    now = observed(situation) if situation.type == "action" else None
    return odds if now is None else odds - _cost(now, situation.body)


def _cost(now: Game, source: str) -> float:
    """Log odds that a move loses: 0 for the best move."""
    returns = "return_to_caller(" in source
    if now.ended:
        return 0.0 if ("next_game(" in source if now.goes_on else returns) else 5.0
    cell = _cell(source)
    if returns or cell is None:
        return 6.0 if returns else 0.5
    if now.board[cell : cell + 1] != game.EMPTY:
        return 6.0 * judge.seen(source)
    return 4.0 * (game.ranked(now.board, now.me)[0][0] - game.value(now.board, cell, now.me))
