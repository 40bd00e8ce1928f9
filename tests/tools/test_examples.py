"""The example blocks that retrieval is seeded with: legal, of every kind, and the executable ones really run."""

import ast
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.support.live_task import LiveTask, started
from weavegen.channels.exchange import Exchange
from weavegen.engine.enqueueing import BOOTSTRAPS
from weavegen.kernel.steps import Execute, Executed
from weavegen.linting.lint import lint
from weavegen.search.examples import read
from weavegen.trace.blocks import PROSE, BlockType

EXAMPLES = read(BOOTSTRAPS / "examples")
BLOCKS = {f"{type}: {example.description}": (type, example.body) for type, example in EXAMPLES}
BY_CHANCE = "nethack"
"""The key of a tool whose dice are its own: an example may well fail in the game that it finds."""
RUNNABLE = [name for name, (type, body) in BLOCKS.items() if type not in PROSE and f'"{BY_CHANCE}"' not in body]
PROGRAMS = ("nano", "emacs")
"""Keys of tools that need a program of this name, which the host may lack."""
FOR_THE_MODEL = ("agent.run(", "agent.research(", "generate_block(")
"""Calls at which an action waits for blocks or traces that a model writes."""
WAITING = [name for name in RUNNABLE if any(call in BLOCKS[name][1] for call in FOR_THE_MODEL)]

WORLD = """
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from bootstraps.tictactoe_server import Game
from tools.browser import WeaveBrowser
from tools.discord import WeaveDiscordClient
from tools.editor import WeaveEditor
from tools.emacs import WeaveEmacs
from tools.nano import WeaveNano
from tools.weave_zombie_game import WeaveZombieGame

FILES = {
    "report.md": "# Report\\n\\n## Hall\\nThe hall seats about 200.\\n\\n## Stage\\nThe stage is new.\\n",
    "recipe.txt": "Flour: two spoons\\nWater: one spoon\\n",
    "story.txt": "There was a lamp in the hall.\\n",
    "settings.json": '{"volume": 3}',
    "data/prices.csv": "name,Cost in crowns\\nrope,20\\ntar,40\\n",
    "data/numbers.txt": "9 10 8\\n",
    "data/run.log": "10:00 ERROR disk\\n10:05 INFO ready\\n",
    "data/count.py": "print(6 * 7)\\n",
    "notes.md": "",
}
PAGES = {
    "/": (200, "text/html", "<a href='/rules'>The rules of the game</a> <a href='/prices.json'>Prices</a>"),
    "/rules": (200, "text/html", "<p>Who has three in a row wins.</p>"),
    "/prices.json": (200, "application/json", '{"rope": 20, "tar": 40}'),
    "/order": (
        200,
        "text/html",
        "<form action='/ordered'><label>Name <input name='name'></label>"
        "<label>Goods <select name='goods'><option>Tar<option>Rope</select></label><button>Order</button></form>",
    ),
    "/ordered?name=Anna&goods=Rope": (200, "text/html", "<p>Thank you: one rope for Anna.</p>"),
    "/broken": (500, "text/plain", "the field number is empty"),
}
OPEN = {
    "editor-/app/report.md": lambda main: WeaveEditor(main, "report.md"),
    "nano": lambda main: WeaveNano(main, "recipe.txt"),
    "emacs": lambda main: WeaveEmacs(main, "recipe.txt"),
    "zombie_game": WeaveZombieGame,
    "browser": WeaveBrowser,
    "discord-bot-lobby": lambda main: WeaveDiscordClient(main, None, "lobby"),
}


def get_state():
    return game.state()


def move(cell):
    game.move(cell)
    return game.state()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/slow":
            time.sleep(2)
        status, kind, text = PAGES.get(self.path, (404, "text/plain", "there is no such page"))
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *args):
        pass


def reset(main, tools):
    # Put everything back, and open these tools.
    global game
    for tool in list(main.tools.values()):
        tool.close()
    for view in list(main.observation_views):
        main.remove_observation_view(view["title"])
    for name, text in FILES.items():
        with open(name, "w") as file:
            file.write(text)
    main.cache.clear()
    vars(main).pop("planned", None)
    main.completed, main.returned = False, None
    game = Game("basic", True, 1)
    for key in tools:
        OPEN[key](main)


def action_set_up(self):
    schema = {"result": {"enum": ["won", "drawn", "lost"]}}
    agent.subagent("main", None, "Be an example", schema, args.budget)
    os.makedirs("data")
    server = ThreadingHTTPServer(("127.0.0.1", 8001), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()


self.add_action("Set up", action_set_up)
"""
"""What the bootstrap files and earlier blocks of the examples' traces have defined."""


class Person:
    """A channel in which a person asks something first, and answers what is said."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.say("Ada", "How many seats has the hall?", None)

    def say(self, author: str, content: str, reply_to: int | None) -> int:
        number = len(self.messages) + 1
        own = author == "agent"
        self.messages.append({
            "id": number, "author": author, "own": own, "content": content, "reply_to": reply_to,
            "timestamp": "2026-01-01T12:00:00+00:00",
            "reactions": [],
        })  # fmt: skip
        return number

    def __call__(self, exchange: Exchange) -> dict[str, Any]:
        if exchange.do in ("send", "reply"):
            return {"values": self.say("agent", exchange.text, exchange.about or None)}
        if exchange.do == "read" and exchange.wait:
            self.say("Ada", "I need it by noon.", None)
        return {"values": self.messages[exchange.after :][-exchange.limit :] if exchange.do == "read" else None}


def tools_of(body: str) -> list[str]:
    """The tools that an example takes to be open."""
    found = {*re.findall(r'self\.tools\["([^"]+)"\]', body)} - {"editor-/app/notes.md"}
    return sorted(found | ({"discord-bot-lobby"} if '"discord-bot"' in body else set()))


@pytest.fixture(scope="module")
def world() -> Iterator[LiveTask]:
    """The world of the examples. Each resets it first."""
    with started(WORLD, 7, {}, Person(), Path(requests.__file__).parents[1]) as task:
        yield task


@pytest.mark.parametrize("name", [name for name in RUNNABLE if name not in WAITING])
def test_an_example_runs(world: LiveTask, name: str) -> None:
    type, body = BLOCKS[name]
    for program in [*({*PROGRAMS} & {*tools_of(body)}), *(["chromium"] if "javascript=True" in body else [])]:
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    world.act(f"reset(self, {tools_of(body)})")
    before = world.views()
    done = world.execute(Execute(op="run", type=type, source=body))
    if type is BlockType.ACTION:
        assert done.registered
        assert done.assertions
        assert all(assertion.answer for assertion in done.assertions), done.assertions
    elif type is BlockType.EVALUATION:
        [evaluated] = evaluations(world.execute(Execute(op="evaluate")))
        assert isinstance(evaluated, bool)
    else:
        after = world.views()
        assert len(after) == len(before) + ("close()" not in body)


@pytest.mark.parametrize("name", WAITING)
def test_an_example_runs_until_a_model_has_to_write(name: str) -> None:
    with started(WORLD, 7, {}) as task:
        task.act("reset(self, [])")
        done = task.execute(Execute(op="run", type=BlockType.ACTION, source=BLOCKS[name][1]))
        assert done.waits_for or done.delegates or done.writes


def evaluations(executed: Executed) -> list[Any]:
    """The values of the tick's evaluations. None may have raised."""
    assert [one.error for one in executed.evaluations] == [None] * len(executed.evaluations)
    return [one.value for one in executed.evaluations if one.scope == "tick"]


@pytest.mark.parametrize("name", BLOCKS)
def test_an_example_is_legal_without_any_penalty(name: str) -> None:
    type, body = BLOCKS[name]
    verdict = lint(type, body)
    assert (verdict.compiles, verdict.penalties.total(), verdict.rewritten) == (True, 0, body)
    assert max(map(len, body.splitlines())) <= 120


def test_examples_cover_what_a_model_writes() -> None:
    counts = Counter(type for type, _ in EXAMPLES)
    written = {*PROSE, BlockType.ACTION, BlockType.EVALUATION, BlockType.OBSERVATION_INFERENCE}
    assert set(counts) == written
    assert min(counts.values()) >= 4
    assert sum(counts.values()) >= 48
    assert (
        len({example.description for _, example in EXAMPLES})
        == len({body for _, body in BLOCKS.values()})
        == len(BLOCKS)
    )
    code = "\n".join(body for type, body in BLOCKS.values() if type is BlockType.ACTION)
    called = r"(agent\.\w+|requests\.get|browser\.\w+|self\.(?:\w+_cache|return_to_caller|plan|generate_block))\("
    used = {*tools_of(code), *re.findall(called, code)}
    assert used >= {
        "editor-/app/report.md", "nano", "emacs", "nethack", "zombie_game", "browser", "discord-bot-lobby",
        "agent.run", "agent.subagent", "agent.research", "agent.find_last_block_of_type", "requests.get",
        "self.update_cache", "self.get_cache", "self.return_to_caller", "self.plan", "self.generate_block",
        "browser.fill", "browser.select", "browser.submit",
    }  # fmt: skip
    assert "wait=" in code


@pytest.mark.parametrize(
    "error",
    [
        "NameError", "SyntaxError", "TypeError", "KeyError", "AttributeError", "FileNotFoundError",
        "ModuleNotFoundError", "TimeoutError", "AssertionError", "404", "500", "stale view",
    ],
)  # fmt: skip
def test_each_common_error_has_an_example_of_its_recovery(error: str) -> None:
    found = [type for type, example in EXAMPLES if error in f"{example.description}\n{example.body}"]
    assert BlockType.DEBUG in found


def test_actions_only_import_what_a_box_has() -> None:
    for _, body in BLOCKS.values():
        nodes = list(ast.walk(ast.parse(body)))
        modules = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
        modules |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
        assert modules <= {"csv", "statistics", "subprocess", "tools.browser", "tools.editor"}
