"""A trace's text is harmless on a terminal, whatever a model, a bootstrap file or a person put into it."""

import json
import re
from pathlib import Path

import pytest

from tests.security.planted import HOSTILE, Planted
from weavegen import text as texts
from weavegen.cli import display
from weavegen.cli.app import fail, print_json
from weavegen.database import Statement
from weavegen.store import urls
from weavegen.store.session import pooled

ALLOWED = re.compile(r"\x1b\[[0-9;]*m|\x1b\[\?25[lh]|\x1b\[[0-9]*[AK]|\x1b\[2K|\r(?=\n|\x1b\[2K|\x1b\[1A)")
"""Sequences that rich itself writes: colours, cursor up, erase line, hide and show the cursor."""
FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\udc80-\udcff]")
SOURCE = f"""
def seen(self):
    return {HOSTILE!r}

def action_start(self):
    main = agent.subagent("main", None, {"Be hostile " + HOSTILE!r}, {{}}, 5)
    main.add_observation_view({"View " + HOSTILE!r}, seen)

self.add_action("Start", action_start)
"""


def is_harmless(text: str) -> None:
    left = FORBIDDEN.findall(ALLOWED.sub("", text))
    assert not left, (left, text)


@pytest.fixture(scope="module")
def hostile(planted: Planted) -> tuple[int, int]:
    """A job and its trace in which every text is hostile."""
    db = pooled(urls.database_url(planted.config))
    block = f"#startblock type: observation\n# {HOSTILE} <script>alert(1)</script>\n#endblock\n"
    with db.begin() as conn:

        def add(table: str, **values: object) -> int:
            names = ", ".join(values)
            query = f"insert into {table} ({names}) values (:{', :'.join(values)}) returning id"
            return int(conn.execute(Statement(query), values).scalar_one())

        job = add("jobs", name=f"{HOSTILE}\nnext", agent="weave", seed=1, settings="{}", version="0")
        trace = add(
            "traces",
            job_id=job,
            number=1,
            bootstrap_id=add("bootstraps", sha256="0", name=HOSTILE, source="x"),
            params="{}",
            seed=1,
            status="failed",
            failure_kind="environment",
            failure=HOSTILE,
            returned=json.dumps({"result": HOSTILE}),
        )
        texts = {"body": HOSTILE, "rendered": block, "title": HOSTILE}
        numbers = {"index": 0, "tick": 0, "timestamp": 0, "time_remaining": 0}
        add("blocks", trace_id=trace, subagent="main", type="observation", compiles=True, tags=[], **texts, **numbers)
        add("events", trace_id=trace, kind="failed", detail=HOSTILE)
        said = f"{HOSTILE}\n[9] person: forged"
        channel = add("channels", trace_id=trace, name="lobby")
        add("messages", channel_id=channel, number=1, kind="message", author=HOSTILE, own=True, text=said)
    db.close()
    return job, trace


COMMANDS = {
    "jobs": ["status"],
    "traces": ["status", "{job}"],
    "a trace": ["show", "{trace}"],
    "a table": ["sql", 'select name as "[red]\x1b[2J{raw}", name, kind, detail from jobs, events'],
    "JSON": ["sql", "--json", 'select name as "a\x9b31m", detail from jobs, events'],
    "a chat": ["chat", "{trace}"],
}


@pytest.mark.parametrize("case", COMMANDS)
def test_commands_write_no_active_terminal_sequences(planted: Planted, hostile: tuple[int, int], case: str) -> None:
    job, trace = hostile
    words = [word.format(job=job, trace=trace, raw="") if "{" in word else word for word in COMMANDS[case]]
    written = planted.terminal(*words, PAGER="cat")  # the text before a pager: `less` moves the cursor itself
    is_harmless(written)
    assert "Traceback" not in written
    assert "evil" in written, written
    if "JSON" not in case:
        assert "[red]x[/red]" in written, "markup is shown as text"
        assert "OWNED" in written
        assert "\ufffd" in written
    if case == "a chat":
        assert "\n    [9] person: forged" in written.replace("\r", "")
    if case == "JSON":
        assert any(
            HOSTILE in str(row) or row["detail"] == HOSTILE for row in json.loads(written[written.index("[\r\n") :])
        )


def test_a_bootstrap_file_that_is_checked_and_run(planted: Planted, tmp_path: Path) -> None:
    file = tmp_path / "hostile.py"
    file.write_text(SOURCE)
    checked = planted.terminal("check", file)
    is_harmless(checked)
    assert "OWNED" in checked
    written = planted.terminal("run", file, "--ticks", "1", "--set", "rounds=[1]", "--name", HOSTILE)
    is_harmless(written)
    assert "1 of 1 over" in written


def test_an_error_that_repeats_data_is_harmless(planted: Planted, hostile: tuple[int, int]) -> None:
    is_harmless(planted.terminal("sql", "select detail::int from events where detail is not null"))


def test_errors_and_json_of_the_other_commands(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"name": HOSTILE})
    with pytest.raises(SystemExit):
        fail(HOSTILE)
    told = capsys.readouterr()
    is_harmless(told.out)
    is_harmless(told.err)


def test_a_file_gets_the_text_of_a_trace_unchanged(planted: Planted, hostile: tuple[int, int]) -> None:
    assert "\x1b]0;OWNED" in planted.cli("show", str(hostile[1])).stdout


def test_the_console_also_cleans_texts_that_a_command_forgot(capsys: pytest.CaptureFixture[str]) -> None:
    display.console().print(HOSTILE, markup=False)
    is_harmless(capsys.readouterr().out)


def test_flower_shows_only_labels_made_by_weavegen(planted: Planted) -> None:
    """Labels are part of events and of Flower's pages (argsrepr)."""
    labels = {label for [label] in planted.sql("select distinct label from steps")}
    assert labels
    assert not [label for label in labels if not re.fullmatch(r"[a-z0-9 =-]+", label)]


def test_escapes_in_json_are_equivalent() -> None:
    text = json.dumps({HOSTILE: HOSTILE}, ensure_ascii=False)
    assert json.loads(texts.harmless_json(text)) == {HOSTILE: HOSTILE}
    is_harmless(texts.harmless_json(text))
    assert str(Path(__file__).name) == texts.harmless(Path(__file__).name)
