"""What commands show in a terminal, and what they write to a pipe."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.cells import cell_len

from tests.support import TICTACTOE
from tests.support.installation import Installation
from tests.support.terminal import Terminal, screen

CLEARED = re.compile(r"\x1b\[[0-3]?J|\x1b\[H|\x1b\[\?1049h")
"""Sequences that make a screen flicker, unless `top` itself needs them."""


@pytest.fixture(scope="module")
def over(installation: Installation) -> int:
    """A job that has ended."""
    job = int(installation.json("enqueue", TICTACTOE, "-n", "2", "--ticks", "1", "--seed", "11")["job"])
    installation.wait(job)
    return job


@pytest.fixture(scope="module")
def paused(installation: Installation) -> Iterator[int]:
    """A job of forty traces that stays unchanged: it is paused before any of them ends."""
    job = int(installation.json("enqueue", TICTACTOE, "-n", "40", "--ticks", "12", "--name", "held")["job"])
    installation.json("pause", str(job))
    yield job
    installation.json("cancel", str(job))


def test_run_draws_each_picture_over_the_previous_one(installation: Installation) -> None:
    terminal = Terminal(installation, "run", TICTACTOE, "-n", "2", "--ticks", "2", "--seed", "1")
    assert terminal.end() == 0
    assert not CLEARED.search(terminal.written)
    left = screen(terminal.written)
    for line in ("speed", "errors", "left", "written"):
        assert [one.split()[0] for one in left if one].count(line) == 1, left
    assert "2 of 2 over" in "\n".join(left)
    assert re.search(r"speed +[\d,]+ tokens/s, [\d,.]+ blocks/min, \d+% of the tokens kept", "\n".join(left))
    assert sum("tictactoe.py" in line and "ended" in line for line in left) == 2
    assert terminal.written.count("of 2 over") > 1, "it was drawn while it ran"


@pytest.mark.parametrize(("columns", "lines"), [(40, 12), (100, 20)])
def test_watch_fits_its_window_and_ctrl_c_does_not_affect_the_job(
    installation: Installation, paused: int, columns: int, lines: int
) -> None:
    terminal = Terminal(installation, "watch", str(paused), columns=columns, lines=lines)
    shown = screen(terminal.read(lambda text: text.count("speed") >= 3))
    assert not CLEARED.search(terminal.written)
    assert max(map(cell_len, (line.rstrip() for line in shown))) <= columns, shown
    assert len(shown) <= lines, shown
    assert any(line.startswith(f"job {paused}") for line in shown), shown
    if lines == 20:
        assert "0 of 40 over" in "\n".join(shown)
        assert "paused" in "\n".join(shown)
    terminal.type("\x03")
    assert terminal.end() == 130
    assert f"job {paused} goes on" in terminal.written
    assert f"cancel {paused}" in terminal.written
    [[still_open]] = installation.sql(
        "select count(*) from traces where job_id = :job and status in ('queued', 'running')", job=paused
    )
    assert still_open == 40


@pytest.mark.parametrize("key", ["q", "\x03"])
def test_top_uses_the_whole_screen_and_restores_it(installation: Installation, paused: int, key: str) -> None:
    terminal = Terminal(installation, "top", columns=120, lines=24)
    # The first pictures are drawn before the model server and the workers have answered.
    written = terminal.read(lambda text: "weavegen-sim" in text and re.search(r"lint +1\b", text) is not None)
    assert written.count("\x1b[?1049h") == 1
    assert not re.search(r"\x1b\[[0-3]?J", written), "the screen is overwritten, never cleared"
    assert re.search(rf"{paused} +held +weave", written)
    assert "paused" in written
    terminal.type(key)
    assert terminal.end() == 0
    assert terminal.written.count("\x1b[?1049l") == 1
    assert terminal.written.count("\x1b[?1049h") == 1


def test_top_without_a_terminal(installation: Installation, paused: int) -> None:
    done = installation.cli("top")
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    assert re.search(rf"^ *{paused} +held", done.stdout, re.MULTILINE)
    told = installation.json("top")
    [job] = [job for job in told["jobs"] if job["id"] == paused]
    assert (job["queued"] + job["running"], job["state"], job["seconds_left"]) == (40, "paused", None)
    assert [server["model"] for server in told["servers"]] == ["weavegen-sim"]
    assert {"control", "sample", "score", "lint", "execute"} <= told["workers"].keys()


def test_lines_in_a_pipe_and_in_a_dumb_terminal(installation: Installation, over: int) -> None:
    piped = installation.cli("watch", str(over))
    assert (piped.returncode, piped.stderr) == (0, "")
    assert piped.stdout.startswith(f"job {over}: tictactoe.py: 2 of 2 over; ")
    assert "\x1b" not in piped.stdout
    dumb = Terminal(installation, "watch", str(over), TERM="dumb", columns=200)
    assert dumb.end() == 0
    assert "2 of 2 over" in dumb.written
    assert "\x1b" not in dumb.written
    colourless = Terminal(installation, "watch", str(over), NO_COLOR="1")
    assert colourless.end() == 0
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]", colourless.written), "no colour"


def test_watch_without_a_number_shows_the_latest_job(installation: Installation, paused: int) -> None:
    latest = installation.json("enqueue", TICTACTOE, "--ticks", "1", "--seed", "5", "--name", "latest")["job"]
    done = installation.cli("watch")
    assert done.stdout.startswith(f"job {latest}: latest: ")
    [row] = installation.json("watch", str(latest))
    assert row["status"] == "ended"


def test_show_uses_a_pager_with_colours(installation: Installation, over: int) -> None:
    [[trace]] = installation.sql("select min(id) from traces where job_id = :job", job=over)
    text = installation.cli("show", str(trace)).stdout
    plain = Terminal(installation, "show", str(trace), "--plain")
    assert plain.end() == 0
    assert plain.written.replace("\r\n", "\n") == text
    paged = Terminal(installation, "show", str(trace), PAGER="cat")
    assert paged.end() == 0
    assert "\x1b[" in paged.written
    assert re.sub(r"\x1b\[[0-9;]*m", "", paged.written).replace("\r\n", "\n") == text
    less = Terminal(installation, "show", str(trace), PAGER="less", LESS="R")
    first = less.read(lambda written: written.count("\n") > 20)
    assert "type: genesis" in first
    assert "\x1b[3" in first, "the pager shows colours"
    less.type("q")
    assert less.end() == 0
    assert "Error" not in less.written


def test_leaving_the_pager_stops_the_reading() -> None:
    """The first lines of an endless text appear, and there is no error message about the rest."""
    code = 'import itertools; from weavegen.cli.paging import page; page(itertools.repeat("x = 1\\n" * 1000))'
    done = subprocess.run(
        ["script", "--quiet", "--return", "--command", shlex.join([sys.executable, "-c", code]), "/dev/null"],
        env={"PATH": "/usr/bin:/bin", "PAGER": "head -n 3", "TERM": "xterm"},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr, done.stdout.count("\n")) == (0, "", 3)


def test_completion_in_bash(installation: Installation, over: int, paused: int, tmp_path: Path) -> None:
    def complete(*words: str, **environ: str) -> list[str]:
        """The completions that Tab offers for the last word."""
        script = (
            f'export PATH="{Path(sys.executable).parent}:$PATH"\n'
            f"source {tmp_path}/.bash_completions/weavegen.sh\n"
            f"COMP_WORDS=({' '.join(map(repr, ('weavegen', *words)))}); COMP_CWORD={len(words)}\n"
            '_weavegen_completion weavegen; printf "%s\\n" "${COMPREPLY[@]}"'
        )
        done = subprocess.run(
            ["bash", "--norc", "-c", script],
            env=installation.environ | environ,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.stderr == ""
        return done.stdout.split()

    installed = subprocess.run(
        ["bash", "--norc", "-c", f"{Path(sys.executable).parent}/weavegen --install-completion; true"],
        env=installation.environ | {"HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "bash completion installed" in installed.stdout, installed.stderr
    assert "weavegen.sh" in (tmp_path / ".bashrc").read_text()

    assert complete("wat") == ["watch"]
    assert {str(over), str(paused)} <= set(complete("watch", ""))
    traces = {str(trace) for [trace] in installation.sql("select id from traces where job_id = :job", job=over)}
    some = min(traces)
    assert some in complete("show", some)
    assert complete("run", "--set", "action.tree_b") == ["action.tree_beam="]
    assert complete("export", "--format", "dp") == ["dpo"]
    assert complete("watch", "", WEAVEGEN_HOME=str(tmp_path / "nowhere")) == []
    assert not (tmp_path / "nowhere").exists()
