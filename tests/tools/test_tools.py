"""The tools in a real box: actions open and use them, and the next tick's views show them."""

import itertools
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from bootstraps.tools import nethack_screen
from bootstraps.tools.nethack import objects
from weavegen import config as configuration
from weavegen.channels.exchange import Exchange, private_channels
from weavegen.errors import TransientError
from weavegen.kernel.steps import Execute, Executed
from weavegen.sandbox import packages
from weavegen.sandbox.environment import Environment, dry_run
from weavegen.sandbox.providers import Limits

EMPTY = "def action_nothing(self):\n    return 1\n\nself.add_action('Nothing', action_nothing)\n"
step_ids, trace_ids = itertools.count(1), itertools.count(1)
Act = Callable[[str], Executed]


@pytest.fixture(scope="module")
def environment() -> Iterator[Environment]:
    with tempfile.TemporaryDirectory(prefix="weavegen-test-") as home:
        Path(home).chmod(0o711)
        environment = Environment.start(configuration.load({"WEAVEGEN_HOME": home}), 1, seed=5)
        assert environment.execute(next(step_ids), Execute(op="bootstrap", source=EMPTY)).error is None
        yield environment
        environment.stop(keep_workspace=False)


@pytest.fixture
def act(environment: Environment) -> Iterator[Act]:
    """Runs an action with this body. Closes all tools at the end."""

    def act(body: str) -> Executed:
        lines = "".join(f"    {line}\n" for line in body.splitlines())
        source = f"def action_test(self):\n{lines}\nself.add_action('Test', action_test)\n"
        step = Execute(op="run", type="action", source=source)  # type: ignore[arg-type]
        return environment.execute(next(step_ids), step)

    yield act
    assert act("for tool in list(self.tools.values()):\n    tool.close()\nreturn len(self.tools)").value == 0
    assert views(environment) == {}


def views(environment: Environment) -> dict[str, str]:
    shown = environment.execute(next(step_ids), Execute(op="begin")).views
    assert [view.error for view in shown] == [None] * len(shown)
    return {view.title: str(view.text) for view in shown}


def value(executed: Executed) -> Any:
    assert executed.error is None, executed.error
    return executed.value


class TestEditor:
    def test_it_writes_and_shows_a_file(self, environment: Environment, act: Act) -> None:
        body = (
            "from tools.editor import WeaveEditor\n"
            "editor = WeaveEditor(self, 'story.txt')\neditor.append('one\\ntwo\\n')\neditor.edit(2, 2, 'zwei')\n"
            "self.tools['editor-/app/story.txt'].unidiff_edit('@@ -1 +1 @@\\n-one\\n+eins\\n')\n"
            "return open('story.txt').read()"
        )
        assert value(act(body)) == "eins\nzwei\n"
        shown = "/app/story.txt: 2 lines, 10 characters\n>1 | eins\n 2 | zwei"
        assert views(environment) == {"WeaveEditor (/app/story.txt)": shown}

    @pytest.mark.parametrize("path", ["/app/tools/editor.py", "/app/locked", "/usr/share/new.txt"])
    def test_files_that_must_not_be_written(self, act: Act, path: str) -> None:
        error = act(
            "import os\nfrom tools.editor import WeaveEditor\n"
            "if not os.path.exists('locked'):\n    open('locked', 'x').close()\n    os.chmod('locked', 0o444)\n"
            f"WeaveEditor(self, {path!r}).append('x')"
        ).error
        assert error is not None
        assert error.type == "PermissionError"
        assert "may not be written to" in error.message


class TestNano:
    def test_the_last_opened_window_is_called_nano(self, act: Act) -> None:
        executed = act(
            "from tools.nano import WeaveNano\none, two = WeaveNano(self, '1'), WeaveNano(self, '2')\n"
            "first = self.tools['nano'] is two\ntwo.close()\n"
            "return [first, self.tools['nano'] is one, sorted(self.tools)]"
        )
        if not missing("nano", "nano", executed):
            assert value(executed) == [True, True, ["nano", "nano-/app/1"]]

    def test_a_window_opens_while_the_server_of_the_last_one_exits(self, act: Act) -> None:
        if shutil.which("nano") is not None:
            body = "from tools.nano import WeaveNano\nfor _ in range(40):\n    WeaveNano(self, '1')\n"
            body += "return len(self.tools)"
            assert value(act(body)) == 2

    def test_it_edits_and_saves_a_file(self, environment: Environment, act: Act) -> None:
        executed = act(
            "from tools.nano import WeaveNano\n"
            "nano = WeaveNano(self, 'poem.txt')\n"
            "nano.send_commands(['Roses; are;', 'Enter'])\n"
            "nano.send_commands(['-- blue', 'C-a', 'C-k', 'end é', 'C-o', 'Enter', 'C-c'])\n"
            "assert self.tools['nano'] is self.tools['nano-/app/poem.txt'] is nano\n"
            "return open('poem.txt').read()"
        )
        if missing("nano", "nano", executed):
            return
        assert value(executed) == "Roses; are;\nend é\n"
        shown = views(environment)["WeaveNano (/app/poem.txt)"]
        assert "80x24, the cursor is in row 3, column 6" in shown
        assert "\nRoses; are;\nend é\n" in shown
        assert "\nKeys: C-o Enter save" in shown
        keys = (
            "nano = self.tools['nano']\nnano.send_commands(['M-\\\\', 'C-k', 'M-/', 'C-u', 'M-u', 'M-e', 'C-_', '1'])\n"
            "nano.send_commands(['Enter', 'C-e', '!', 'C-o', 'Enter'])\nreturn open('poem.txt').read()"
        )
        assert value(act(keys)) == "end é!\nRoses; are;\n"
        closing = "nano = self.tools['nano']\nnano.send_keys('C-x')\nreturn nano.get_screen_text()"
        assert "the program has ended" in value(act(closing))
        again = act("self.tools['nano'].send_keys('x')").error
        assert again is not None
        assert "nano has ended: close this tool" in again.message


class TestEmacs:
    def test_it_edits_and_saves_a_file(self, environment: Environment, act: Act) -> None:
        executed = act(
            "from tools.emacs import WeaveEmacs\n"
            "emacs = WeaveEmacs(self, 'song.txt')\n"
            "emacs.send_commands(['Roses; are', 'Enter', 'red', 'C-a', 'C-k', 'blue é', 'C-x', 'C-s'])\n"
            "assert self.tools['emacs'] is self.tools['emacs-/app/song.txt'] is emacs\n"
            "return open('song.txt').read()"
        )
        if missing("emacs", "emacs-nox", executed):
            return
        assert value(executed) == "Roses; are\nblue é\n"
        [shown] = views(environment).values()
        assert "\nRoses; are\nblue é\n" in shown
        assert "\nKeys: C-x C-s save" in shown
        assert "Warning" not in shown

    def test_the_keys_that_the_view_names(self, act: Act) -> None:
        executed = act(
            "from tools.emacs import WeaveEmacs\n"
            "emacs = WeaveEmacs(self, 'keys.txt')\n"
            "emacs.send_commands(['one', 'Enter', 'two', 'M-<', 'C-k', 'C-e', 'M->', 'C-y', 'C-/', 'C-g'])\n"
            "emacs.send_commands(['M-g', 'g', '1', 'Enter', 'C-a', 'zero', 'C-x', 'C-s'])\n"
            "return open('keys.txt').read()"
        )
        if not missing("emacs", "emacs-nox", executed):
            assert value(executed) == "zero\ntwo\n"

    def test_without_a_file(self, environment: Environment, act: Act) -> None:
        executed = act("from tools.emacs import WeaveEmacs\nWeaveEmacs(self)\nreturn list(self.tools)")
        if not missing("emacs", "emacs-nox", executed):
            assert value(executed) == ["emacs"]
            assert "*scratch*" in views(environment)["WeaveEmacs"]


class TestNethack:
    def test_objects_are_seen_from_the_player(self) -> None:
        rows = ["The door is locked.", "   -----+--", "   |..$..>|", "   |.@....|##", "   -<------"]
        seen = objects([*rows, *[""] * 17, "Weaver the Stripling   St:18 @ $"])
        assert seen["floor"] == [(-1, 1), (0, 1), (2, 1), (3, 1), (-1, 0), (1, 0), (2, 0), (3, 0), (4, 0)]
        assert seen["vertical wall"][:2] == [(-2, 1), (5, 1)]
        assert seen["horizontal wall"][0] == (-2, 2)
        assert {name: seen[name] for name in seen if not name.endswith(("wall", "floor"))} == {
            "player": [(0, 0)],
            "door": [(3, 2)],
            "gold": [(1, 1)],
            "down staircase": [(4, 1)],
            "corridor": [(6, 0), (7, 0)],
            "up staircase": [(-1, -1)],
            "nearest-stairs": [(-1, -1), (4, 1)],
            "nearest-exits": [(3, 2), (6, 0), (7, 0)],
            "northmost-exit": [(3, 2)],
            "southmost-exit": [(7, 0)],
            "eastmost-exit": [(7, 0)],
            "westmost-exit": [(3, 2)],
            "northmost-stairs": [(4, 1)],
            "southmost-stairs": [(-1, -1)],
            "eastmost-stairs": [(4, 1)],
            "westmost-stairs": [(-1, -1)],
        }
        assert objects([""] * 24) == {}

    def test_a_screen_is_read(self) -> None:
        yellow, white, end = "\x1b[33m", "\x1b[1;7m\x1b[37m", "\x1b[0m"
        rows = [
            "You see here a scroll.",
            f"   ----{yellow}-{end}--{yellow}+{end}",
            f"   |..$..>{yellow}|{end}",
            f"   .{white}d{end}@..D.|##",
            f"   |....+k|  {yellow}%{end}",
            "   -<------",
            *[""] * 16,
            "[\x1b[7mWeaver the Strip\x1b[0mling] St:18/03 Dx:9 Co:-1 Neutral",
            "Dlvl:3 $:17 HP:4(14) Pw:0(2) AC:7 Xp:2 T:1402 Hungry",
        ]
        screen = nethack_screen.parse("\n".join(rows), (5, 3))
        assert (screen.player, screen.message) == ((5, 3), "You see here a scroll.")
        assert screen.status == {
            "strength": 18, "dexterity": 9, "constitution": -1, "depth": 3, "gold": 17, "hp": 4, "max_hp": 14,
            "power": 0, "max_power": 2, "armor_class": 7, "level": 2, "turn": 1402,
        }  # fmt: skip
        assert [(thing.kind, thing.name, thing.column, thing.row) for thing in screen.things()] == [
            ("item", "gold", 6, 2), ("pet", "dog or jackal", 4, 3), ("door", "open door", 7, 1),
            ("door", "doorway", 3, 3), ("stairs", "up staircase", 4, 5), ("monster", "dragon", 8, 3),
            ("item", "spellbook", 8, 4), ("stairs", "down staircase", 9, 2), ("monster", "kobold", 9, 4),
            ("door", "closed door", 10, 1), ("door", "open door", 10, 2), ("feature", "corridor", 11, 3),
            ("feature", "corridor", 12, 3), ("item", "food", 13, 4),
        ]  # fmt: skip
        assert {(thing.right, thing.down, thing.distance) for thing in screen.things()[:2]} == {(-1, 0, 1), (1, -1, 1)}
        assert screen.around()[3].strip() == ".d@..D.|##"
        menu = [*rows[:3], "   a - a dagger (end)", *rows[4:]]
        assert nethack_screen.parse("\n".join(menu), (21, 3)).things() == [], "Is a menu no map?"
        for last in ("(1 of 2)", "Weaver the Stripling"):
            assert nethack_screen.parse("\n".join([*rows[:23], last])).things() == [], "Does a menu fill the screen?"
        assert nethack_screen.parse("").player is None

    def test_moves(self, environment: Environment, act: Act) -> None:
        executed = act(
            "from tools.nethack import WeaveNethack\n"
            "nethack = WeaveNethack(self)\n"
            "def go_on():\n"
            "    for _ in range(20):\n"
            "        if nethack.player is None or '--More--' in nethack.message:\n"
            "            nethack.send_keys('Enter')\n"
            "go_on()\n"
            "first, here = nethack.status(), nethack.player\n"
            "name = nethack.describe(*here)\n"
            "for way in ('n', 'south', 'e', 'west', 'north-east', 'nw', 'southeast', 'south west'):\n"
            "    if nethack.move(way):\n"
            "        break\n"
            "    go_on()\n"
            "go_on()\n"
            "there = nethack.player\n"
            "for _ in range(20):\n"  # the dungeon differs each time, and a monster or pet may stand there
            "    back = nethack.travel(*here)\n"
            "    go_on()\n"
            "    if back:\n"
            "        break\n"
            "    nethack.search(1)\n"
            "    go_on()\n"
            "nethack.search(5)\n"
            "go_on()\n"
            "def refused(what, *arguments):\n"
            "    try:\n        what(*arguments)\n"
            "    except (ValueError, RuntimeError) as error:\n        return str(error)\n"
            "wrong = [refused(nethack.move, 'left'), refused(nethack.travel, 90, 5), refused(nethack.search, 0)]\n"
            "nethack.send_keys('i')\n"
            "hidden = [nethack.player, nethack.things(), refused(nethack.move, 'north')]\n"
            "nethack.send_keys('Escape')\n"
            "return [first, name, here, there, back, nethack.status(), wrong, hidden]"
        )
        if missing("nethack", "nethack-console", executed):
            return
        first, name, here, there, back, last, wrong, hidden = value(executed)
        assert (first["depth"], first["turn"], first["level"]) == (1, 1, 1)
        assert first["hp"] == first["max_hp"] > 0
        assert "Weaver" in name
        assert max(abs(here[0] - there[0]), abs(here[1] - there[1])) == 1
        assert back is True
        assert last["turn"] > 3
        assert wrong[0].startswith("'left' is no direction: give one of west, south")
        assert wrong[1:] == [
            "there is no place (90, 5): the map has columns 0 to 79 and rows 1 to 21",
            "search 1 to 200 turns, not 0",
        ]
        assert hidden == [None, [], "the game waits: read on with Enter, or leave what it asks with Escape"]
        [shown] = views(environment).values()
        assert f"I am at column {here[0]}, row {here[1]}. In view, the nearest first:" in shown
        assert "The last frames, the part around me, the newest to the right:\n" in shown

    def test_a_game(self, environment: Environment, act: Act) -> None:
        executed = act(
            "from tools.nethack import WeaveNethack\n"
            "nethack = WeaveNethack(self)\n"
            "for _ in range(20):\n"
            "    if '--More--' not in nethack.pane.capture_pane():\n"
            "        break\n"
            "    nethack.send_keys('Enter')\n"
            "nethack.send_commands(['s', 'Escape', ':', 'Escape'])\n"
            "return self.tools['nethack'] is nethack"
        )
        if missing("nethack", "nethack-console", executed):
            return
        assert value(executed) is True
        [shown] = views(environment).values()
        assert "Weaver the" in shown
        assert "Last keys sent:" in shown
        assert "':'" in shown
        moved = act(
            "nethack = self.tools['nethack']\n"
            "places = nethack.get_objects()\n"
            "keys = []\n"
            "for way in ((1, 0), (0, 3), (-1, 1), (2, -2)):\n"
            "    nethack.simple_move(way)\n"
            "    keys.append(nethack.moves[-1][0])\n"
            "return [keys, all(len(p) == 2 for ps in places.values() for p in ps)]"
        )
        assert value(moved) == [["l", "k", "y", "n"], True]
        assert "Dlvl:1" in value(act("n = self.tools['nethack']\nn.send_keys('Escape')\nreturn n.render()"))


def missing(program: str, package: str, executed: Executed) -> bool:
    """Whether a program is not installed. The tool must have reported this."""
    if any(shutil.which(name, path=os.environ["PATH"] + ":/usr/games") for name in (program, package)):
        return False
    assert not os.environ.get("WEAVEGEN_NO_SKIPS"), f"{program} is not installed: install the package {package}"
    assert executed.error is not None
    assert executed.error.message == f"{program} is not installed: install the package {package} on the host"
    return True


class TestOtherPrograms:
    # Replaces a program that may not be installed: shows its input, and ends at `q`.
    FAKE = (
        "from tools.terminal import Terminal\n"
        "class Echo(Terminal):\n"
        "    programs, package = ('sh',), 'dash'\n"
        "    def __init__(self, agent):\n"
        '        script = \'echo ready; while read line; do [ "$line" = q ] && exit 3; echo "got $line"; done\'\n'
        "        super().__init__(agent, 'Echo', 'echo', arguments=('-c', script))\n"
    )

    def test_a_line_based_program(self, environment: Environment, act: Act) -> None:
        body = self.FAKE + (
            "echo = Echo(self)\necho.send_command('hello\\n')\necho.send_keys('Enter\\n')\n"
            "echo.send_keys('x' * 100)\necho.send_keys('Enter')\n"
            "echo.pane.send_keys('from the pane')\n"
            "return ['got from the' in echo.pane.capture_pane(start=0, end='-'), echo.pane.capture_pane()[:3]]"
        )
        assert value(act(body)) == [True, ["ready", "hello", "got hello"]]
        assert "got Enter" in views(environment)["Echo"]
        assert "its last screen" in value(
            act("self.tools['echo'].send_keys('q\\n')\nreturn self.tools['echo'].render()")
        )

    def test_a_program_that_exits_at_once(self, act: Act) -> None:
        body = (
            "from tools.terminal import Terminal\n"
            "class Broken(Terminal):\n    programs, package = ('sh',), 'dash'\n"
            "Broken(self, 'Broken', 'broken', arguments=('-c', 'echo no map; exit 1'))"
        )
        error = act(body).error
        assert error is not None
        assert error.message == "broken ended as soon as it was started. no map"

    def test_several_windows_at_once(self, environment: Environment, act: Act) -> None:
        body = self.FAKE.replace("'Echo', 'echo'", "'Echo ' + str(n), 'echo' + str(n)").replace("agent):", "agent, n):")
        assert value(act(body + "for n in range(8):\n    Echo(self, n).send_command('%d\\n' % n)\nreturn 1")) == 1
        assert [f"got {n}" in text for n, text in enumerate(views(environment).values())] == [True] * 8


class TestGameAndBrowser:
    def test_zombie_game(self, environment: Environment, act: Act) -> None:
        body = (
            "from tools.weave_zombie_game import WeaveZombieGame\n"
            "game = WeaveZombieGame(self)\ngame.send_command('scavenge')\ngame.send_command('go square')\n"
            "return self.tools['zombie_game'].state"
        )
        state = value(act(body))
        assert (state["place"], state["hour"], state["locations_explored"]) == ("square", 10, 2)
        assert "> go square" in views(environment)["WeaveZombieGame"]

    def test_browser(self, environment: Environment, act: Act) -> None:
        body = (
            "import threading, http.server\nfrom tools.browser import WeaveBrowser\n"
            "open('index.html', 'w').write('<h1>Hi</h1><a href=poem.html>a poem</a>')\n"
            "class Handler(http.server.SimpleHTTPRequestHandler):\n    def log_message(self, *args): pass\n"
            "server = http.server.ThreadingHTTPServer(('127.0.0.1', 8000), Handler)\n"
            "threading.Thread(target=server.serve_forever, daemon=True).start()\n"
            "return WeaveBrowser(self, 'localhost:8000').links()"
        )
        assert value(act(body)) == [[1, "a poem", "http://localhost:8000/poem.html"]]
        assert "# Hi\n\na poem [1]" in views(environment)["WeaveBrowser"]


SHOP = """<title>Shop</title><h1>Orders</h1><p>See <a href="/rules.html" target="_blank">the rules</a>.</p>
<form action="/order" method="post"><label>Name: <input name="name" required maxlength="10"></label>
<input type="date" name="day"><input type="hidden" name="from" value="shop"><textarea name="note"></textarea>
<select name="size"><option value="s">Small<option value="l">Large</select>
<label><input type="checkbox" name="agree"> I agree</label>
<input type="radio" name="colour" value="red"> <input type="radio" name="colour" value="blue">
<button>Send</button><button type="button" disabled>Never</button></form>
<p style="display: none">unseen</p><p id="out">nothing yet</p><button onclick="count()">Count</button>
<b id="tile" style="cursor: pointer">tile</b>
<button onclick="out.textContent = confirm('Sure?') + prompt('Who?', 'me')">Ask</button>
<button onclick="fetch('/data.json').then((it) => it.json()).then((it) => { out.textContent = it.x })">Fetch</button>
<button onclick="window.open('/rules.html')">Open</button>
<input id="live" oninput="out.textContent = value.toUpperCase()" onkeydown="if (event.key == 'Enter') value = 'sent'">
<script>let n = 0; const count = () => { n++; out.textContent = `count ${n}` };
tile.addEventListener("click", () => { out.textContent = "tile!" });
document.body.insertAdjacentHTML("beforeend", `<p>made by a script: ${6 * 7}</p><p id="dice">${Math.random()}</p>`);
</script>"""


class TestChromium:
    """The browser with JavaScript, on the pages of a server in the box."""

    SERVER = """\
import http.server, threading, urllib.parse
from tools.browser import WeaveBrowser
pages = {'/': SHOP, '/rules.html': '<pre>one\\n  two</pre><a href="/">home</a>', '/data.json': '{"x": "fetched"}',
         '/endless.html': '<p>before</p><script>for (;;);</script>',
         '/large.html': '<script>for (const all = [];;) all.push(new Array(1e6).fill(0.5))</script>'}
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer(pages.get(self.path, 'not here'), 200 if self.path in pages else 404)
    def do_POST(self):
        sent = self.rfile.read(int(self.headers['Content-Length'])).decode()
        self.answer('<h2>Thanks</h2>' + str(sorted(urllib.parse.parse_qsl(sent))), 200)
    def answer(self, text, status):
        self.send_response(status)
        self.send_header('Content-Type', 'text/html')
        self.end_headers()
        self.wfile.write(text.encode())
    def log_message(self, *args): pass
server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
site = f'http://localhost:{server.server_port}'
browser = WeaveBrowser(self, site, javascript=True)
def number(kind, text):
    return next(one[0] for one in browser.controls() if one[1] == kind and text in one[2])
def out():
    return browser.lines[browser.lines.index([one for one in browser.lines if 'Count' in one][0]) - 2]
def refused(what, *arguments):
    try:
        what(*arguments)
    except Exception as error:
        return type(error).__name__ + ': ' + str(error)
"""

    def test_a_form_is_filled_in_and_sent(self, environment: Environment, act: Act) -> None:
        executed = act(
            f"SHOP = {SHOP!r}\n{self.SERVER}"
            "early = refused(browser.submit, number('field', 'Name'))\n"
            "browser.fill(number('field', 'Name'), 'Anna Karenina')\n"
            "wrong = [refused(browser.fill, number('field', 'day'), 'tomorrow'),\n"
            "         refused(browser.select, number('list', 'size'), 'Huge'),\n"
            "         refused(browser.click, number('button', 'Never')), refused(browser.check, 99)]\n"
            "browser.fill(number('field', 'day'), '2026-01-02')\n"
            "browser.fill(number('text area', 'note'), 'two\\nlines')\n"
            "browser.select(number('list', 'size'), 'Large')\n"
            "browser.check(number('box', 'agree'))\n"
            "browser.check(number('choice', 'blue'))\n"
            "filled, sent = browser.render(), browser.submit()\n"
            "return [early, wrong, filled, sent.splitlines()[-1], 'Orders' in browser.back(), refused(browser.back)]\n"
        )
        if missing("chromium", "chromium", executed):
            return
        early, wrong, filled, sent, back, refused = value(executed)
        assert early == "ValueError: [2] Name: Please fill out this field."
        assert wrong == [
            'ValueError: [3] is a date field: it can\'t hold "tomorrow"',
            'ValueError: [5] has no "Huge": it has "Small", "Large"',
            "ValueError: [10] is disabled: it can't be changed",
            "ValueError: there is no [99] on this page",
        ]
        assert 'Name: (field Name: "Anna Karen") [2]' in filled
        assert '(list size: "Large" of "Small", "Large") [5] (box I agree: checked) [6] I agree' in filled
        assert "See the rules [1]." in filled
        assert "unseen" not in filled
        wanted = [("agree", "on"), ("colour", "blue"), ("day", "2026-01-02"), ("from", "shop"), ("name", "Anna Karen")]
        assert sent == str([*wanted, ("note", "two\r\nlines"), ("size", "l")])
        assert (back, refused) == (True, "ValueError: there is no page to go back to")

    def test_scripts_run(self, environment: Environment, act: Act) -> None:
        executed = act(
            f"SHOP = {SHOP!r}\n{self.SERVER}"
            "seen = [browser.lines[-3]]\n"
            "for kind, text in (('button', 'Count'), ('button', 'Count'), ('clickable', 'tile'), ('button', 'Ask')):\n"
            "    browser.click(number(kind, text))\n    seen.append(out())\n"
            "asked = browser.render().splitlines()[1:3]\n"
            "browser.press(number('button', 'Fetch'))\nseen.append(out())\n"
            "browser.fill(number('field', 'live'), 'abc')\nbrowser.press('d')\nseen.append(out())\n"
            "browser.press('Enter')\nseen.append([one[3] for one in browser.controls() if one[2] == 'live'])\n"
            "browser.click(number('button', 'Open'))\nrules = browser.follow(1)\n"
            "browser.follow(1)\nrules = browser.url, browser.links(), browser.lines\n"
            "return [seen, asked, rules]"
        )
        if missing("chromium", "chromium", executed):
            return
        seen, asked, (url, links, lines) = value(executed)
        assert seen == [
            "made by a script: 42", "count 1", "count 2", "tile!", "trueme", "fetched", "ABCD", ["sent"],
        ]  # fmt: skip
        assert asked == [f"(The page asked or said: '{text}' (it got yes))" for text in ("Sure?", "Who?")]
        assert url.endswith("/rules.html")
        assert links == [[1, "home", url.removesuffix("rules.html")]]
        assert lines == ["one", "  two", "", "home [1]"]
        assert "home [1]" in views(environment)["WeaveBrowser"]

    def test_answers_that_are_no_pages(self, environment: Environment, act: Act) -> None:
        executed = act(
            f"SHOP = {SHOP!r}\n{self.SERVER}"
            "browser.open(site + '/no')\nshown = [browser.render()]\n"
            "shown.append(refused(browser.open, 'http://localhost:10/'))\n"
            "shown.append(refused(browser.open, 'file:///etc/passwd'))\n"
            "shown.append(refused(browser.open, 'http://192.0.2.1/'))\n"
            "import tools.chromium\nseconds, tools.chromium.LOAD_SECONDS = tools.chromium.LOAD_SECONDS, 1.0\n"
            "shown.append(browser.open(site + '/endless.html'))\nshown.append(browser.render())\n"
            "tools.chromium.LOAD_SECONDS = seconds\n"
            "shown += [refused(browser.open, site + '/large.html'), browser.render()]\n"
            "shown.append(browser.open(site + '/rules.html'))\nreturn [site, shown]"
        )
        if missing("chromium", "chromium", executed):
            return
        site, (unknown, closed, file, outside, _, endless, large, crashed, after) = value(executed)
        assert unknown == f"{site}/no (404 Not Found, lines 1 to 1 of 1)\nnot here"
        assert closed == "ConnectionError: http://localhost:10/ does not answer: net::ERR_CONNECTION_REFUSED"
        assert "only addresses that begin with http" in file
        assert outside == "ConnectionError: http://192.0.2.1/ does not answer: net::ERR_INTERNET_DISCONNECTED"
        assert endless.endswith("JavaScript ran for 5 s and was ended)\nbefore")
        assert large == "TimeoutError: the page has crashed: open another one"
        assert crashed.startswith(f"{site}/large.html (")
        assert crashed.endswith("lines 1 to 0 of 0)\n(the page has crashed: open another one)")
        assert after.startswith("one\n  two")

    def test_it_ends_with_its_window_and_leaves_nothing(self, environment: Environment, act: Act) -> None:
        executed = act(
            f"SHOP = {SHOP!r}\n{self.SERVER}"
            "import os, time\n"
            "def programs():\n"
            "    return [open(f'/proc/{one}/comm').read() for one in os.listdir('/proc') if one.isdecimal()]\n"
            "def dice():\n    return browser.lines[-1]\n"
            "threads = sum(len(os.listdir(f'/proc/{one}/task')) for one in os.listdir('/proc') if one.isdecimal())\n"
            "again = WeaveBrowser(self, site, javascript=True)\n"
            "closed = not browser.is_open\n"
            "os.kill(again.chromium.process.pid, 9)\ntime.sleep(0.2)\n"
            "ended = [again.render().splitlines()[1], refused(again.open, site)]\n"
            "again.close()\ntime.sleep(0.5)\n"
            "return [threads, closed, ended, [one for one in programs() if 'chrom' in one], os.listdir('/tmp')]"
        )
        if missing("chromium", "chromium", executed):
            return
        threads, closed, ended, programs, left = value(executed)
        assert threads < 100, "Is there room for other programs among the 128 processes and threads?"
        assert closed
        message = "chromium has ended: close this tool, and open it again if it is needed"
        assert ended == [f"({message})", f"Ended: {message}"]
        assert (programs, [name for name in left if "chrom" in name]) == ([], [])

    def test_equal_seeds_give_equal_random_numbers(self, act: Act) -> None:
        body = (
            f"SHOP = {SHOP!r}\nimport random\nrandom.seed(7)\n{self.SERVER}"
            "first = browser.lines[-1]\nrandom.seed(7)\nagain = WeaveBrowser(self, site, javascript=True)\n"
            "other = WeaveBrowser(self, site, javascript=True)\n"
            "return [first, again.lines[-1], other.lines[-1]]"
        )
        executed = act(body)
        if not missing("chromium", "chromium", executed):
            first, again, other = value(executed)
            assert first == again != other

    @pytest.mark.parametrize(
        ("limits", "message"),
        [
            (
                Limits(most_address_space=2**36),
                "chromium can't run here: it reserves 110 GiB of address space, the limit is 64 (Limits.most_addr",
            ),
            (Limits(processes=40), "chromium ended as soon as it was started"),
        ],
    )
    def test_limits_that_are_too_small_are_named(self, limits: Limits, message: str) -> None:
        source = (
            "from tools.browser import WeaveBrowser\n"
            "def action_open(self):\n    WeaveBrowser(self, javascript=True)\nself.add_action('Open', action_open)\n"
        )
        [executed] = dry_run(configuration.load(), source, limits=limits)
        if not missing("chromium", "chromium", executed):
            assert executed.error is not None
            assert executed.error.message.startswith(message)
            assert executed.error.type == "RuntimeError"


class TestDiscord:
    OPEN = "from tools.discord import WeaveDiscordClient\nchat = WeaveDiscordClient(self, 'a token', 'hall')\n"

    @staticmethod
    def step(body: str) -> Execute:
        lines = "".join(f"    {line}\n" for line in body.splitlines())
        source = f"def action_test(self):\n{lines}\nself.add_action('Test', action_test)\n"
        return Execute(op="run", type="action", source=source)  # type: ignore[arg-type]

    def test_requests_over_the_socket(self, environment: Environment, act: Act) -> None:
        hall, wishes = private_channels(), list[Exchange]()

        def chat(wish: Exchange) -> dict[str, Any]:
            wishes.append(wish)
            return hall(wish)

        body = (
            "n = chat.send_message('Hello')\nchat.react_to_message(n, ':)')\n"
            "n2 = chat.reply_to_message(str(n), 'Hello?')\n"
            "chat.add_reaction(n, '+1')\n"
            "return [n, n2, [message['content'] for message in chat.get_messages(wait=99)]]"
        )
        executed = environment.execute(next(step_ids), self.step(self.OPEN + body), chat=chat)
        assert value(executed) == [1, 2, ["Hello", "Hello?"]]
        assert [(wish.turn, wish.do) for wish in wishes] == list(
            enumerate(("open", "send", "react", "reply", "react", "read"), 1)
        )
        assert wishes[5].wait == 60
        assert "a token" not in str(wishes)
        shown = environment.execute(next(step_ids), Execute(op="begin"), chat=chat).views
        first, second = shown[0].text.splitlines()[1:]
        assert re.fullmatch(r"\[1, \d{4}-\d\d-\d\d \d\d:\d\d\] me: Hello \(reactions: :\) \+1\)", first)
        assert re.fullmatch(r"\[2, [-\d]{10} [:\d]{5}\] me, answering 1: Hello\?", second)
        assert (wishes[-1].turn, wishes[-1].do) == (1, "read"), "Do turns count from 1 in each step?"

    def test_the_history_of_a_channel(self, environment: Environment, act: Act) -> None:
        def others(wish: Exchange) -> dict[str, Any]:
            if wish.do == "read":
                reads.append((wish.after, wish.before, wish.limit))
            return hall(wish)

        hall, reads = private_channels(), list[tuple[int, int, int]]()
        body = (
            "for text in 'abcdef':\n    chat.send_message(text)\n"
            "chat.react_to_message(5, '+1')\nchat.react_to_message(5, '+1')\nchat.react_to_message(5, ':)')\n"
            "history = [chat.get_messages(before=3), chat.get_messages(before='6', limit=2)]\n"
            "history += [chat.get_messages(after=4), chat.get_messages(before=1)]\n"
            "history += [chat.get_messages(after=1, before=4)]\n"
            "return [''.join(one['content'] for one in some) for some in history], history[1][1]"
        )
        texts, fifth = value(environment.execute(next(step_ids), self.step(self.OPEN + body), chat=others))
        assert texts == ["ab", "de", "ef", "", "bc"]
        assert reads == [(0, 3, 20), (0, 6, 2), (4, 0, 20), (0, 1, 20), (1, 4, 20)]
        assert fifth["reactions"] == ["+1", "+1", ":)"]
        assert datetime.fromisoformat(fifth["timestamp"]).tzinfo is not None
        [shown] = environment.execute(next(step_ids), Execute(op="begin"), chat=others).views
        assert "] me: e (reactions: +1 2 :))\n" in shown.text

    def test_the_bot_answers_over_http_as_in_weave_agent(self) -> None:
        source = (
            "import json, requests\nfrom tools.discord import WeaveDiscordClient\n"
            "def action_talk(self):\n"
            "    account = json.load(open('discord.json'))\n"
            "    client = WeaveDiscordClient(self, account['key'], account['cid'])\n"
            "    def post(**asked):\n"
            "        answer = requests.post('http://localhost:8080', json=asked)\n"
            "        return answer.status_code, answer.json()\n"
            "    client.send_message('Hello')\n"
            "    sent = post(action='send_message', content='Who is there?')\n"
            "    status, messages = post(action='get_messages')\n"
            "    said = [[message['author'], message['content']] for message in messages]\n"
            "    assert [one['id'] for one in post(action='get_messages', before=2)[1]] == [1]\n"
            "    return [sent, status, said, post(action='sing'), post()[0]]\n"
            "self.add_action('Talk', action_talk)\n"
        )
        config = configuration.load()
        folder = packages.install(config, packages.LOCK.read_text())
        [executed] = dry_run(config, source, packages=folder)
        sent, status, said, refused, empty = value(executed)
        assert (sent, status) == ([200, {"id": 2}], 200)
        assert said == [["Weaver", "Hello"], ["Weaver", "Who is there?"]]
        assert refused == [400, {"error": "there is no action 'sing'"}]
        assert empty == 400

    def test_an_exchange_survives_its_worker(self, environment: Environment, act: Act) -> None:
        wishes: list[Exchange] = []

        def killed(wish: Exchange) -> dict[str, Any]:
            wishes.append(wish)
            raise TransientError("the database is away")

        def chat(wish: Exchange) -> dict[str, Any]:
            wishes.append(wish)
            return {"values": None if wish.do == "open" else 7}

        step = self.step(self.OPEN + "return chat.send_message('Hello')")
        with pytest.raises(TransientError):
            environment.execute(5_000_000, step, chat=killed)
        assert value(environment.execute(5_000_000, step, chat=chat)) == 7
        assert [(wish.turn, wish.do) for wish in wishes] == [(1, "open"), (1, "open"), (2, "send")]

    def test_waiting_for_people_does_not_count_as_time(self, environment: Environment, act: Act) -> None:
        def slow(wish: Exchange) -> dict[str, Any]:
            time.sleep(0.3)
            return private_channels()(wish)

        step = self.step(self.OPEN + "return chat.get_messages(wait=1)")
        limits = Limits(seconds=0.2, grace=0.2)
        assert value(environment.execute(next(step_ids), step, chat=slow, limits=limits)) == []

    @pytest.mark.parametrize(
        ("body", "message"),
        [
            ("chat.send_message('x' * 2001)", "send it in parts"),
            ("chat.send_message('  ')", "says something"),
            ("chat.react_to_message(1, '')", "a reaction is one emoji"),
            ("chat.react_to_message(-1, ':)')", "there is no message -1"),
            ("WeaveDiscordClient(self, '', 'y' * 101)", "1 to 100 characters"),
            ("chat.close()\nchat.send_message('Hello')", "is closed"),
        ],
    )
    def test_messages_that_can_not_be_sent(self, act: Act, body: str, message: str) -> None:
        error = act(self.OPEN + body).error
        assert error is not None
        assert message in error.message

    def test_a_refusal_of_the_worker_fails_the_callback(self, environment: Environment, act: Act) -> None:
        def refuse(wish: Exchange) -> dict[str, Any]:
            return {"error": "there is no such message"}

        executed = environment.execute(next(step_ids), self.step(self.OPEN), chat=refuse)
        assert executed.error is not None
        assert (executed.error.type, executed.error.message) == ("ValueError", "there is no such message")
        assert views(environment) == {}, "Is a channel that can't be opened not a tool?"
