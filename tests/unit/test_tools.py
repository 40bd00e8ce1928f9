"""The tools without a box: the editor and its diffs, the zombie game played to its endings, the browser."""

import difflib
import http.server
import json
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bootstraps.tools import diff, terminal
from bootstraps.tools.browser import WeaveBrowser
from bootstraps.tools.chromium_page import live_lines
from bootstraps.tools.editor import WeaveEditor
from bootstraps.tools.html_text import to_text
from bootstraps.tools.weave_zombie_game import WeaveZombieGame
from bootstraps.tools.zombie_game import Game
from bootstraps.tools.zombie_town import TOWN
from weavegen.box import api

Lines = st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n\r"), max_size=6), max_size=8)


@pytest.fixture
def main() -> api.Subagent:
    return api.Tree("model", 60).subagent("main", None, "Tidy up", {}, 30)


def editor_of(path: Path, text: str | None = None) -> WeaveEditor:
    if text is not None:
        path.write_bytes(text.encode())
    return WeaveEditor(api.Tree("model", 60).subagent("main", None, "", {}, 30), str(path))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("editor") / "story.txt"


class TestWindow:
    def test_a_window_is_a_tool_and_a_view_until_it_is_closed(self, main: api.Subagent, tmp_path: Path) -> None:
        editor = WeaveEditor(main, str(tmp_path / "a"))
        assert main.tools == {f"editor-{tmp_path}/a": editor}
        (view,) = main.observation_views
        with pytest.raises(ValueError, match="close the tool"):
            main.remove_observation_view(view["title"])
        editor.close()
        editor.close()
        assert (main.tools, main.observation_views) == ({}, [])
        with pytest.raises(RuntimeError, match="is closed"):
            editor.append("x")

    def test_a_file_has_one_window(self, main: api.Subagent, tmp_path: Path) -> None:
        first, second = (WeaveEditor(main, str(tmp_path / "a")) for _ in range(2))
        assert not first.is_open
        assert list(main.tools.values()) == [second]
        assert len(main.observation_views) == 1

    def test_a_ninth_view_is_refused(self, main: api.Subagent, tmp_path: Path) -> None:
        for number in range(8):
            WeaveEditor(main, str(tmp_path / str(number)))
        with pytest.raises(ValueError, match="eight observation views"):
            WeaveZombieGame(main)
        assert len(main.tools) == 8

    def test_a_window_of_the_bootstrap_is_closed_by_the_main_subagent(self, main: api.Subagent) -> None:
        mock = api.Tree("model", 60).subagent("bootstrap", None, "", {}, 30)
        game = WeaveZombieGame(mock)
        main.tools.update(mock.tools)
        main.observation_views += mock.observation_views
        main.observation_views[0]["callback"](main)
        game.close()
        assert (main.tools, main.observation_views) == ({}, [])


class TestEditor:
    def test_edit_replaces_inserts_and_deletes(self, path: Path) -> None:
        editor = editor_of(path, "one\ntwo\nthree\n")
        editor.edit(2, 2, "2a\n2b")
        assert path.read_text() == "one\n2a\n2b\nthree\n"
        editor.edit(2, 3, "")
        editor.edit(3, 2, "four\n")
        editor.edit(1, 0, "\n")
        assert path.read_text() == "\none\nthree\nfour\n"

    def test_arguments_have_the_names_of_weave_agent(self, main: api.Subagent, path: Path) -> None:
        path.write_text("one\ntwo\n")
        editor = WeaveEditor(main, filepath=str(path))
        editor.edit(start_line=2, end_line=2, new_text="zwei")
        assert editor.find(regex="^z.*i$") == 2
        editor.up(n=1)
        assert editor.cursor == 1
        editor.save_file(str(path.with_name("copy.txt")))
        assert path.with_name("copy.txt").read_text() == path.read_text() == "one\nzwei\n"
        assert editor.path == str(path)

    @pytest.mark.parametrize("span", [(0, 1), (3, 2), (2, 0), (1, 9), (5, 5), (-1, 1)])
    def test_lines_beyond_the_end_are_refused(self, path: Path, span: tuple[int, int]) -> None:
        editor = editor_of(path, "one\ntwo")
        if span == (3, 2):  # text may be inserted after the last line
            editor.edit(*span, "three")
            assert path.read_text() == "one\ntwo\nthree"
            return
        with pytest.raises(ValueError, match="has 2 lines"):
            editor.edit(*span, "x")
        with pytest.raises(TypeError, match="line number"):
            editor.edit("1", 2, "x")  # type: ignore[arg-type]
        assert path.read_text() == "one\ntwo"

    @settings(deadline=None)  # it writes files
    @given(Lines, Lines, st.data())
    def test_an_edit_changes_only_its_lines(
        self, path: Path, old: list[str], new: list[str], data: st.DataObject
    ) -> None:
        start = data.draw(st.integers(1, len(old) + 1))
        end = data.draw(st.integers(start - 1, len(old)))
        editor = editor_of(path, "".join(line + "\n" for line in old))
        editor.edit(start, end, "".join(line + "\n" for line in new))
        wanted = [*old[: start - 1], *new, *old[end:]]
        assert path.read_bytes().decode() == "".join(line + "\n" for line in wanted)

    @given(st.text(st.characters(codec="utf-8"), max_size=20), st.text(st.characters(codec="utf-8"), max_size=20))
    def test_append_keeps_the_old_text(self, path: Path, old: str, new: str) -> None:
        crlf = "\r\n" in old and old.count("\r\n") == old.count("\n")
        editor_of(path, old).append(new)
        if not crlf:
            glue = "\n" if old and new and not old.endswith("\n") else ""
            assert path.read_bytes().decode() == old + glue + new

    def test_windows_line_ends_are_kept(self, path: Path) -> None:
        editor_of(path, "a\r\nb\r\n").append("c\n")
        assert path.read_bytes() == b"a\r\nb\r\nc\r\n"

    def test_clear_and_a_new_file(self, tmp_path: Path) -> None:
        editor = editor_of(tmp_path / "new.txt")
        assert "not made yet" in editor.render()
        editor.edit(1, 1, "first")
        assert (tmp_path / "new.txt").read_text() == "first"
        editor.clear()
        assert (tmp_path / "new.txt").read_text() == ""
        assert [file.name for file in tmp_path.iterdir()] == ["new.txt"]

    def test_moving_the_view(self, path: Path) -> None:
        editor = editor_of(path, "".join(f"line {n}\n" for n in range(1, 101)))
        assert editor.find("line 7") == 7
        assert editor.find("line 7") == 70
        assert editor.find("9$") == 79
        assert editor.find("line 7") == 7
        assert editor.find("(") is None
        editor.down()
        assert editor.cursor == 47
        view = editor.render()
        assert view.startswith(f"{path}: 100 lines, 792 characters; lines 27 to 66 are shown")
        assert ">47 | line 47" in view
        editor.end()
        editor.down()
        editor.up(1)
        assert editor.cursor == 99
        editor.start()
        editor.goto(5)
        assert editor.cursor == 5
        with pytest.raises(ValueError, match="no line 101"):
            editor.goto(101)

    def test_the_size_of_the_view(self, path: Path) -> None:
        editor = editor_of(path, "".join(f"line {n}\n" for n in range(1, 101)))
        assert editor.window_size == 40
        editor.window_size = 4
        editor.down()
        assert editor.render().splitlines()[1:] == [" 3 | line 3", " 4 | line 4", ">5 | line 5", " 6 | line 6"]
        assert "lines 3 to 6 are shown" in editor.render()
        for wrong in (0, 1_001, "10", True):
            with pytest.raises(ValueError, match="1 to 1,000 lines"):
                setattr(editor, "window_size", wrong)  # noqa: B010 - a wrong type

    def test_another_file_in_the_same_window(self, tmp_path: Path, main: api.Subagent) -> None:
        (tmp_path / "b").write_text("one\ntwo\n")
        editor = WeaveEditor(main, str(tmp_path / "a"))
        editor.save_file()
        assert (tmp_path / "a").read_text() == ""
        editor.open(str(tmp_path / "b"))
        assert main.tools == {f"editor-{tmp_path}/b": editor}
        assert [view["title"] for view in main.observation_views] == [f"WeaveEditor ({tmp_path}/b)"]
        editor.edit(1, 1, "eins")
        editor.save_file()
        assert (tmp_path / "b").read_text() == "eins\ntwo\n"
        with pytest.raises(FileNotFoundError, match="no folder"):
            editor.open(str(tmp_path / "no" / "c"))
        assert (editor.path, editor.is_open) == (f"{tmp_path}/b", True), "Does the window still show the file before?"
        editor.append("drei")
        assert (tmp_path / "b").read_text() == "eins\ntwo\ndrei"

    def test_a_path_that_is_not_a_text_file_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(IsADirectoryError, match="is a folder"):
            editor_of(tmp_path)
        with pytest.raises(FileNotFoundError, match="no folder"):
            editor_of(tmp_path / "no" / "a")
        (tmp_path / "b").write_bytes(b"ab\xff")
        with pytest.raises(ValueError, match="no UTF-8 text: byte 2 is 0xff"):
            editor_of(tmp_path / "b")
        with pytest.raises(ValueError, match="no ordinary file"):
            editor_of(Path("/dev/null"))

    def test_symbolic_links_and_file_modes_are_kept(self, tmp_path: Path) -> None:
        (tmp_path / "real").write_text("x\n")
        (tmp_path / "real").chmod(0o754)
        (tmp_path / "link").symlink_to("real")
        editor_of(tmp_path / "link").append("y\n")
        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "real").read_text() == "x\ny\n"
        assert (tmp_path / "real").stat().st_mode & 0o777 == 0o754


class TestDiff:
    @given(Lines, Lines, st.integers(0, 3), st.integers(-5, 5))
    def test_a_diff_turns_old_into_new(self, old: list[str], new: list[str], context: int, wrong: int) -> None:
        text = "\n".join(difflib.unified_diff(old, new, "a", "b", lineterm="", n=context))
        if text:
            assert diff.apply(text, old)[0] == new

    def test_wrong_line_numbers_are_accepted(self, path: Path) -> None:
        editor = editor_of(path, "a\nb\nc\nd\n")
        editor.unidiff_edit("--- x\n+++ x\n@@ -90,2 +90,2 @@ somewhere\n c\n-d\n+D\n")
        editor.unidiff_edit(["@@\n", "-a", "+A\n", " b  \n"])
        assert path.read_text() == "A\nb\nc\nD\n"
        assert editor.cursor == 1

    def test_removed_lines_may_look_like_headers(self, path: Path) -> None:
        editor_of(path, "-- x\ny\n").unidiff_edit("--- a\n+++ b\n@@ -1,2 +1,2 @@\n--- x\n+++ x\n y\n\n")
        assert path.read_text() == "++ x\ny\n"

    def test_the_newline_at_the_end_of_the_file(self, path: Path) -> None:
        editor = editor_of(path, "a\n")
        editor.unidiff_edit("@@ -1 +1 @@\n-a\n+b\n\\ No newline at end of file")
        assert path.read_text() == "b"
        editor.unidiff_edit("@@ -1 +1 @@\n-b\n\\ No newline at end of file\n+c\n")
        assert path.read_text() == "c\n"

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "no hunk"),
            ("hello", "before any hunk"),
            ("@@ -x @@\n a", "no hunk header"),
            ("@@ -1 +1 @@\nhello", "must begin with"),
            ("@@ -1,2 +1 @@\n a\n-x\n", "wants 'x', but line 2 is 'b'"),
            ("@@ -4,2 +4 @@\n b\n-c\n-d\n", "wants 'd' where the file has ended, after line 4"),
            ("@@\n-b\n+B\n", "fits 2 places"),
            ("@@\n+B\n", "doesn't say where"),
            ("@@ -1 +1 @@\n-a\n+A\n--- x\n+++ x\n@@ -1 +1 @@\n-q", "more than one file"),
        ],
    )
    def test_a_diff_that_does_not_match_changes_nothing(self, path: Path, text: str, message: str) -> None:
        editor = editor_of(path, "a\nb\nb\nc\n")
        with pytest.raises(ValueError, match=message):
            editor.unidiff_edit(text)
        assert path.read_text() == "a\nb\nb\nc\n"


class TestZombieGame:
    WIN = (
        "sneak square, go police, fight, fight, fight, search, sneak square, go pharmacy, eat, search, heal,"
        "search, heal, throw school, go square, go police, go petrol, search, go police, sneak square,"
        "throw pharmacy, go school, search, sneak square, sneak bridge, eat, go hill, go tower, barricade, repair,"
        "call, hide, fight, fight, fight, fight, hide"
    )

    def test_a_planned_game_can_be_won(self) -> None:
        game = Game(548)
        for command in self.WIN.split(","):
            assert not game.state()["over"]
            game.command(command)
        assert (game.result, game.state()["won"]) == ("rescued", True)
        assert game.state()["zombies_killed"] == 4
        assert "The game is over" in game.command("go hill")

    def test_staying_in_the_square_is_deadly(self) -> None:
        game = Game(1)
        while game.result == "playing":
            game.command("search" if game.place == "square" else "go square")
        assert game.result == "dead"
        assert game.clock < 24

    def test_hiding_until_the_end_loses(self) -> None:
        game = Game(1)
        while game.result == "playing":
            game.command("eat" if game.hunger > 5 and game.inventory["food"] else "hide")
        assert game.result == "too late"

    @given(st.integers(), st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), max_size=60))
    def test_any_sequence_of_commands_is_handled(self, seed: int, choices: list[tuple[int, int]]) -> None:
        games, words = (Game(seed), Game(seed)), [*TOWN, *Game(0).inventory, "", "bandage", "fuel", "?!"]
        for verb, word in choices:
            names = sorted(games[0].commands)
            line = f"{names[verb % len(names)]} {words[word % len(words)]}"
            outputs = [game.command(line) for game in games]
            assert outputs[0]
            assert outputs[0] == outputs[1]
            assert min(games[0].zombies.values()) >= 0
            assert min(games[0].inventory.values()) >= 0
            assert games[0].load() <= 12
        json.dumps(games[0].state())
        assert games[0].state() == games[1].state()

    def test_the_game_as_a_tool(self, main: api.Subagent) -> None:
        random.seed(5)
        game = WeaveZombieGame(main)
        assert len(game.game.commands) >= 12
        output = game.send_command("help")
        assert all(name in output for name in ("barricade", "repair", "sneak"))
        game.send_command("scavenge")
        assert game.last_state["inventory"]["scrap"] >= 3
        assert "no command 'dance'" in game.send_command("dance")
        assert game.command_history == ["help", "scavenge", "dance"]
        assert main.tools["zombie_game"].session
        assert "> scavenge" in main.observation_views[0]["callback"](main)
        game.send_command("restart")
        assert game.state["hour"] == 8
        game.close()
        assert game.session is None


PAGE = """<html><head><title>Rules</title><style>p {}</style></head><body><h2>The  rules</h2><p>Read
<a href="/more?x=1">the <b>rest</b></a>, please.</p><ol><li>One<ul><li>deep</li></ul><li>Two</ol>
<table><tr><th>a<th>b<tr><td>1<td>2</table><pre>x
  y</pre><script>no()</script><input name=q><img alt="a cat">&amp;<br>end"""


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        pages = {"/": PAGE, "/more?x=1": "more <a href='/'>home</a>", "/long": "<br>".join(map(str, range(99)))}
        if self.path == "/bad":
            self.send_response(302)
            self.send_header("Location", "file:///etc/hosts")
        else:
            self.send_response(200 if self.path in pages else 404)
            self.send_header("Content-Type", "image/png" if self.path == "/image" else "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(pages.get(self.path, "nothing here").encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class TestBrowser:
    def test_html_as_text(self) -> None:
        lines, links = to_text(PAGE, "http://x/a/")
        assert [line for line in lines if line] == [
            "Rules", "## The rules", "Read the rest [1], please.", "1. One", "  - deep", "2. Two", "a | b",
            "1 | 2", "x", "  y", "<input q>(a cat)&", "end",
        ]  # fmt: skip
        assert [(link.text, link.url) for link in links] == [("the rest", "http://x/more?x=1")]

    def test_following_links(self, main: api.Subagent, site: str) -> None:
        browser = WeaveBrowser(main, site + "/")
        assert browser.links() == [(1, "the rest", f"{site}/more?x=1")]
        assert browser.follow(1) == "more home [1]"
        assert main.observation_views[0]["callback"](main).startswith(f"{site}/more?x=1 (200 OK, lines 1 to 1 of 1)")
        assert "The rules" in browser.back()
        with pytest.raises(ValueError, match="no page to go back"):
            browser.back()
        with pytest.raises(ValueError, match="this page has 1"):
            browser.follow(2)

    def test_what_only_chromium_can_do(self, main: api.Subagent, site: str) -> None:
        browser = WeaveBrowser(main, site + "/")
        assert browser.render().endswith("WeaveBrowser(self, url, javascript=True) runs them.)")
        assert "javascript=True" not in browser.follow(1) + browser.render()
        with pytest.raises(RuntimeError, match="this browser only reads"):
            browser.fill(1, "x")

    def test_a_page_of_chromium_as_text(self) -> None:
        html = 'a <span><weave-click n="1">b</weave-click></span>, <weave-click n="7"><div>c</div></weave-click>'
        assert live_lines(html) == ["a b [1],", "c [7]"]

    def test_other_responses(self, main: api.Subagent, site: str) -> None:
        browser = WeaveBrowser(main)
        assert "No page is open" in browser.render()
        browser.open(site.removeprefix("http://") + "/long")
        browser.down()
        assert browser.render().endswith("\n".join(map(str, range(40, 80))))
        browser.up()
        assert "lines 1 to 40 of 99" in browser.render()
        browser.open(f"{site}/no")
        assert "404 Not Found" in browser.render()
        assert "no text: image/png" in browser.open(f"{site}/image")

    @pytest.mark.parametrize(
        ("url", "message"),
        [("file:///etc/hosts", "http://"), ("http://127.0.0.1:9/", "does not answer"), ("/bad", "not allowed|302")],
    )
    def test_urls_that_can_not_be_opened(self, main: api.Subagent, site: str, url: str, message: str) -> None:
        if url == "/bad":
            assert "302" in WeaveBrowser(main, site + url).render()
            return
        with pytest.raises((ValueError, OSError), match=message):
            WeaveBrowser(main, url)
        assert (main.tools, main.observation_views) == ({}, [])


class TestTerminal:
    @pytest.mark.parametrize("key", ["Enter", "C-x", "M-f", "C-M-x", "^O", "F12", "BSpace", "S-Up", "C-_", "M->"])
    def test_keys(self, key: str) -> None:
        assert terminal.KEY.fullmatch(key)

    @pytest.mark.parametrize("text", ["a", "enter", "F13", "the End", "^", "C-", "-", "Enter\n"])
    def test_texts(self, text: str) -> None:
        assert not terminal.KEY.fullmatch(text)

    def test_missing_programs_are_named(self) -> None:
        with pytest.raises(FileNotFoundError, match="no-such-thing is not installed: install the package thing"):
            terminal.program(("no-such-thing",), "thing")

    def test_screen_search_is_within_lines(self) -> None:
        screen = terminal.Screen(["You die...", "Do you want your possessions identified? [ynq]"])
        assert "possessions identified?" in screen
        assert "\n".join(screen).startswith("You die...\nDo")
