"""Drills: ticks that no installation ran. The simulation's policies answer made-up observations without mistakes.

A trace costs seconds of an installation's time and has a dozen ticks; a drill costs milliseconds. Traces teach what an
agent's work looks like, with its errors, outcomes and answers. Drills teach what to write for an observation, and
take many examples: digits to add, lines to copy, boards to read. The views are the bootstrap files' own functions.
"""

import ast
import random
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bootstraps import tournament_server
from bootstraps.tictactoe_server import Game
from bootstraps.tools.editor import WeaveEditor
from bootstraps.tools.nano import KEYS
from simulation import policies
from simulation.policies import draft, nano, story, sums, tictactoe
from simulation.policies.situation import read
from weavegen.kernel.context import STOP
from weavegen.trace.blocks import Block, BlockType
from weavegen.trace.render import normalise_body, render_block

BOOTSTRAPS = Path(__file__).parent.parent / "bootstraps"
BEGUN = {BlockType.ORIENTATION: '"""', BlockType.ACTION: "def action_", BlockType.EXPECTATION: '"""'}
BEGUN[BlockType.EVALUATION] = "def eval_"
"""The blocks of a drill, in their order, and the beginnings of their bodies in a prompt."""
NEAR = {BlockType.ORIENTATION: BEGUN[BlockType.ORIENTATION]}
QUERIES = {BlockType.ORIENTATION: 0.6, BlockType.ACTION: 0.2}
"""Shares of blocks that were written after a search."""
ROWS = 21
"""Rows for the text in the terminal with nano."""
FLAWS: tuple[dict[str, float], ...] = (
    draft.CALLBACK_FLAWS, draft.EVALUATION_FLAWS, draft.PROSE_FLAWS,
    nano.MISTAKES, story.PARAGRAPHS, sums.MISTAKES, tictactoe.MOVES,
)  # fmt: skip
"""How often the policies make each mistake."""


@dataclass(frozen=True)
class Scene:
    """What the model reads at the beginning of a tick."""

    bootstrap: str
    """The name of the bootstrap file."""
    task: str
    """The subagent's task, its schema and its evaluations: the end of the reminder."""
    views: dict[str, str]
    """Title and text of each view."""


@dataclass(frozen=True)
class Definitions:
    """Functions and constants of a bootstrap file, without running its first tick."""

    bootstrap: str
    names: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        kept = ast.Module([node for node in ast.parse(source(self.bootstrap)).body if is_definition(node)], [])
        exec("import json, os, random", self.names)
        exec(compile(kept, self.bootstrap, "exec"), self.names)

    def call(self, name: str, *values: Any, **names: Any) -> Any:
        """Call a function of the file after setting `names`."""
        self.names.update(names)
        return self.names[name](*values)


def source(bootstrap: str) -> str:
    return (BOOTSTRAPS / f"{bootstrap}.py").read_text()


def is_definition(node: ast.stmt) -> bool:
    """Whether a statement is a function, a constant in capitals, or an import of the standard library."""
    if isinstance(node, ast.Assign):
        return isinstance(node.targets[0], ast.Name) and node.targets[0].id.isupper()
    if isinstance(node, ast.ImportFrom):
        return False
    return isinstance(node, ast.FunctionDef | ast.Import)


def make(counts: Mapping[str, int], chance: random.Random, *, near: bool = False) -> list[list[Block]]:
    """This many drills of each task, in a random order.

    `near`: only their orientations, directly after the view that they read, for close-ups.
    """
    drills = []
    with flawless():
        for task, count in counts.items():
            stream = SCENES[task](chance)
            for _ in range(count):
                scene = next(stream)
                if near:
                    views = {title: text for title, text in scene.views.items() if not title.startswith("Weave")}
                    scene = replace(scene, views=views)
                drills.append(drill(scene, chance.getrandbits(32), NEAR if near else BEGUN))
    chance.shuffle(drills)
    return drills


@contextmanager
def flawless() -> Iterator[None]:
    """While this context is open, the policies make no mistakes, in the whole process."""
    kept = [dict(rates) for rates in FLAWS]
    for rates in FLAWS:
        rates.clear()
    try:
        yield
    finally:
        for rates, before in zip(FLAWS, kept, strict=True):
            rates.update(before)


def drill(scene: Scene, seed: int, begun: Mapping[BlockType, str] = BEGUN) -> list[Block]:
    """The tick that the policy of the scene's bootstrap writes, up to the last block in `begun`."""
    blocks = [
        block(BlockType.TASK_REMINDER, f"Problem map:\n- main: in progress, time budget 360 minutes\n{scene.task}")
    ]
    blocks += [block(BlockType.OBSERVATION, text, title=title) for title, text in scene.views.items()]
    prompt = source(scene.bootstrap) + "\n" + "".join(map(render_block, blocks))
    chance = random.Random(seed)
    for type, first in begun.items():
        text = first + policies.write(read(f"{prompt}#startblock type: {type}\n{first}"), seed, 0)
        end = min(at for stop in (*STOP, "") if (at := text.find(stop) if stop else len(text)) >= 0)
        words = query(scene, chance) if chance.random() < QUERIES.get(type, 0) else None
        blocks.append(block(type, normalise_body(type, text[:end]), bm25_query=words))
        prompt += render_block(blocks[-1])
    return blocks


def query(scene: Scene, chance: random.Random) -> str:
    """Words of a search. They say nothing about what comes next, so that the model doesn't rely on them."""
    words = re.findall(r"[a-z]{3,}", " ".join([scene.task, *scene.views.values()]).lower())
    return " ".join("+" * (chance.random() < 0.3) + chance.choice(words) for _ in range(chance.randint(5, 12)))


def block(type: BlockType, body: str, title: str | None = None, bm25_query: str | None = None) -> Block:
    return Block(
        type=type, body=body, index=0, timestamp=0.5, time_remaining=0.5, title=title, bm25_query=bm25_query
    )  # fmt: skip


def written(tick: list[Block]) -> str:
    """The source of a drill's action."""
    return next(block.body for block in tick if block.type is BlockType.ACTION)


# ---------------------------------------------------------------------------------------------- the scenes


def sums_scenes(chance: random.Random) -> Iterator[Scene]:
    """Sums of numbers of at most two digits."""
    file = Definitions("sums")
    while True:
        count = 4
        done = chance.choices(range(count + 1), (3, 3, 3, 3, 1))[0]
        numbers = [pair(chance) for _ in range(count)]
        wrong = chance.choices((0, 1, 2), (8, 1, 1))[0]
        shown = file.call("view_sum", None, sums=numbers, answered=done, wrong=wrong)
        task = (
            f"    Answer {count} sums, all of them right\n"
            '  returns: {"result":{"enum":["won","lost"],"type":"string"}}\n'
            f"  Were all answers right? {not wrong}\n  Is every sum answered? {done == count}"
        )
        yield Scene("sums", task, {"Sum": shown})


def pair(chance: random.Random) -> tuple[int, int]:
    """Two numbers to add. A quarter of all pairs is left out, to see how a model adds pairs that it has not seen."""
    while is_left_out(found := (chance.randrange(100), chance.randrange(100))):
        pass
    return found


def is_left_out(numbers: tuple[int, int]) -> bool:
    return (7 * numbers[0] + 3 * numbers[1]) % 4 == 0


def played(game: Game, chance: random.Random) -> None:
    """Play a few moves, mostly as the policy does: the model must know best what comes up in such games.

    The bootstrap opens in the centre.
    """
    wise = chance.random() < 0.75
    for number in range(chance.randrange(6)):
        state = game.state()
        if state["over"] or not state["free"]:
            return
        best = 4 if not number and game.you == "X" else tictactoe.Game("".join(state["board"]), game.you, False).best()
        game.move(best if wise or chance.random() < 0.6 else chance.choice(state["free"]))


def tictactoe_scenes(chance: random.Random) -> Iterator[Scene]:
    """Boards that come up in games with good and bad moves."""
    file = Definitions("tictactoe")
    while True:
        opponent = chance.choice(("basic", "basic", "random", "minimax"))
        game = Game(opponent, chance.random() < 0.7, chance.getrandbits(32))
        played(game, chance)
        state = game.state() | {"opponent": opponent}
        shown = file.call("view_board", None, get_state=lambda state=state: state)
        won = state["over"] and state["result"] == "won"
        task = (
            f"    Win a game of tic-tac-toe against {opponent}\n"
            '  returns: {"result":{"enum":["won","drawn","lost"],"type":"string"}}\n'
            f"  Did we win the game? {won}\n  Is the game over? {state['over']}"
        )
        yield Scene("tictactoe", task, {"Board": shown})


def tournament_scenes(chance: random.Random) -> Iterator[Scene]:
    """Positions in tournaments against opponents that do not block."""
    file = Definitions("tictactoe_tournament")
    while True:
        names = ["random", "eager"]
        rounds = chance.choice((1, 1, 2))
        tournament = tournament_server.Tournament(tournament_server.pair(names, rounds, chance.getrandbits(32)))
        for number in range(chance.randint(1, len(tournament.pairings))):
            if number:
                tournament.next()
            play(tournament, chance, whole=number + 1 < len(tournament.pairings))
        if chance.random() < 0.5:
            play(tournament, chance, whole=True)
        state = tournament.state() | {"opponent": tournament.game.state().get("opponent")}
        own = {"get_state": lambda state=state: state, "pairings": tournament.pairings, "moves": tournament.moves}
        own |= {"opponents": names, "rounds": rounds, "graded_before": None, "tournament_server": tournament_server}
        own |= {"results": tournament_server.results, "beaten": tournament_server.beaten}
        views = {"Game": file.call("view_game", None, **own), "Table": file.call("view_table", None)}
        asked = {
            "Has every game been played to its end?": "is_over",
            "Have we beaten an opponent?": "one_is_beaten",
            "Have we beaten half of the opponents?": "half_are_beaten",
            "Have we beaten all opponents that can be beaten?": "all_are_beaten",
            "Has no opponent beaten us?": "none_beats_us",
            "Was no move taken back?": "record_is_kept",
        }
        task = "".join(f"\n  {question} {file.call(name, None)}" for question, name in asked.items())
        what = f"    Beat {len(names)} opponents at tic-tac-toe, in {len(tournament.pairings)} games\n"
        schema = '  returns: {"beaten":"integer","is_over":"boolean"}'
        yield Scene("tictactoe_tournament", what + schema + task, views)


def play(tournament: tournament_server.Tournament, chance: random.Random, *, whole: bool) -> None:
    """Play the present game, to its end or a few moves long."""
    moves = 9 if whole else chance.randrange(4)
    while moves and not (state := tournament.game.state())["over"]:
        good = tictactoe.Game("".join(state["board"]), state["you"], False).best()
        tournament.move(good if chance.random() < 0.7 else chance.choice(state["free"]))
        moves -= 1


def nano_scenes(chance: random.Random) -> Iterator[Scene]:
    """Texts with faults, in part corrected from the top."""
    file = Definitions("nano_practice")
    while True:
        target = file.names["TEXTS"][chance.choice(sorted(file.names["TEXTS"]))].split("\n")
        random.seed(chance.getrandbits(32))
        faults = chance.choice((2, 4, 6, 9, 9))
        lines = file.call("damaged", target, faults)
        file.names.update(target=target, written=lambda lines=lines: lines)
        for _ in range(faults if chance.random() < 0.05 else chance.randrange(faults)):
            if places := file.call("changes"):
                first, count, new = places[0]
                lines[first - 1 : first - 1 + count] = new
        task = (
            "    With nano, make /app/practice.txt equal to the text that the difference view compares it with\n"
            f'  returns: {{"similarity":"number"}}\n  Is the saved file equal to the text? {lines == target}'
        )
        views = {
            "WeaveNano (/app/practice.txt)": screen("/app/practice.txt", lines, chance),
            "Differences": file.call("view_differences", None),
        }
        yield Scene("nano_practice", task, views)


def screen(path: str, lines: list[str], chance: random.Random) -> str:
    """The terminal with nano as its view shows it when everything is saved."""
    row = chance.randint(1, min(len(lines), ROWS))
    text = [*lines, *[""] * ROWS][:ROWS]
    keys = (
        "^G Help      ^O Write Out ^W Where Is  ^K Cut       ^T Execute   ^C Location",
        "^X Exit      ^R Read File ^\\ Replace   ^U Paste     ^J Justify   ^/ Go To Line",
    )
    head = f"WeaveNano ({path}): 80x24, the cursor is in row {row + 1}, column 1"
    return "\n".join([head, f"  GNU nano 7.2{path:>36}", *text, *keys, KEYS])


class Desk:
    """A subagent of a drill: holds tools and shows nothing."""

    def __init__(self) -> None:
        self.tools: dict[str, object] = {}

    def add_observation_view(self, *view: object, **options: object) -> None:
        pass


def mansion_scenes(chance: random.Random) -> Iterator[Scene]:
    """Stories as they grow by the policy's own paragraphs."""
    file = Definitions("haunted_mansion")
    opening = next(node for node in ast.parse(source("haunted_mansion")).body if isinstance(node, ast.FunctionDef)
                   and node.name == "action_set_up_and_begin")  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "story.txt")
        while True:
            path.unlink(missing_ok=True)
            editor: Any = WeaveEditor(Desk(), str(path))  # type: ignore[arg-type]
            for text in appended(opening):
                editor.append(text)
            own = {"get_story": path.read_text, "least_words": 400, "least_rooms": 4}
            while True:
                views = {
                    "WeaveEditor (/app/story.txt)": editor.render().replace(str(path), "/app/story.txt"),
                    "Progress": file.call("view_progress", None, **own),
                }
                long, rooms, ended = (
                    file.call(name, None) for name in ("is_long_enough", "is_visiting_enough", "is_ended")
                )
                fears, good = chance.random() < 0.7, chance.random() < 0.7
                task = (
                    "    Write a haunted mansion story in story.txt\n"
                    '  returns: {"rooms":"integer","words":"integer","quality":"number","is_long_enough":"boolean"}\n'
                    f"  Does the story have 400 words or more? {long}\n"
                    f"  Does the visitor enter 4 rooms or more? {rooms}\n"
                    f"  Does the story end with a line that reads The End? {ended}\n"
                    f"  Would the story frighten a reader who is alone at night? {fears}\n"
                    f"  Is this a good haunted mansion story? {good}"
                )
                scene = Scene("haunted_mansion", task, views)
                yield scene
                if ended:
                    break
                for text in appended(ast.parse(written(drill(scene, chance.getrandbits(32))))):
                    editor.append(text)


def appended(node: ast.AST) -> list[str]:
    """The texts that a piece of source appends to the story."""
    calls = [call for call in ast.walk(node) if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)]
    return [ast.literal_eval(call.args[0]) for call in calls if getattr(call.func, "attr", "") == "append"]


SCENES: dict[str, Callable[[random.Random], Iterator[Scene]]] = {
    "haunted_mansion": mansion_scenes,
    "nano_practice": nano_scenes,
    "sums": sums_scenes,
    "tictactoe": tictactoe_scenes,
    "tictactoe_tournament": tournament_scenes,
}
