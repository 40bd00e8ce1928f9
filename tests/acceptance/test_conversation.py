"""Conversations with traces: the test is the person, at the terminal or on a simulated Discord."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support import ROOT
from tests.support.installation import Installation

CONVERSATION = ROOT / "bootstraps" / "conversation.py"
TRIED = ("--search", "execute")
"""The simulated model makes mistakes. An action that fails after it sent a message would send it again."""


PATIENCE = 120.0
"""Seconds to wait for a message."""
STATE = {
    "blocks": "select index, ran, rendered from blocks where trace_id = :trace order by index desc limit 12",
    "steps": "select tick, kind, status, claims, failure from steps where trace_id = :trace order by id desc limit 8",
    "events": "select kind, detail from events where trace_id = :trace order by id desc limit 8",
}
"""Queries that show why an agent does not answer, newest first."""


class Person:
    """A person at `weavegen chat TRACE --json`."""

    def __init__(self, installation: Installation, trace: int, process: "subprocess.Popen[str]"):
        self.installation, self.trace, self.process = installation, trace, process
        self.heard: list[dict[str, Any]] = []

    def say(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def hear(self, **wanted: Any) -> dict[str, Any]:
        """The next line that has these values."""
        assert self.process.stdout is not None
        alarm = threading.Timer(PATIENCE, self.process.kill)
        alarm.start()
        for line in self.process.stdout:
            self.heard.append(json.loads(line))
            if self.heard[-1].items() >= wanted.items():
                alarm.cancel()
                return self.heard[-1]
        alarm.cancel()
        state = {what: self.installation.sql(query, trace=self.trace) for what, query in STATE.items()}
        raise AssertionError(f"no message with {wanted}: {self.heard}, {state}")

    def over(self) -> Any:
        """The reason why the trace ended."""
        assert self.process.stdout is not None
        self.heard += map(json.loads, self.process.stdout)
        return self.heard[-1].get("over")


@contextmanager
def person(installation: Installation, trace: int, *options: str) -> Iterator[Person]:
    with subprocess.Popen(
        [Path(sys.executable).parent / "weavegen", "chat", str(trace), "--json", *options],
        env=installation.environ,
        cwd=installation.home,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Person(installation, trace, process)
        finally:
            process.kill()


def enqueue(installation: Installation, *options: str) -> int:
    job = installation.json("enqueue", CONVERSATION, "--ticks", "40", "--seed", "8", *TRIED, *options)["job"]
    [[trace]] = installation.sql("select id from traces where job_id = :job", job=job)
    return int(trace)


def test_a_conversation_reaches_its_goodbye_although_the_environment_dies(installation: Installation) -> None:
    trace = enqueue(installation, "-p", "topic=roofs")
    with person(installation, trace) as visitor:
        assert "roofs" in visitor.hear(own=True, id=1)["text"]
        visitor.say("I like those with grass on them.")
        reply = visitor.hear(own=True, kind="message")
        assert reply["about"] == 2
        assert "grass on them" in reply["text"]

        [[pid]] = installation.sql(
            "select pid from environments where trace_id = :trace and closed_at is null", trace=trace
        )
        os.kill(pid, signal.SIGKILL)
        visitor.say("Bees like them too.")
        assert "Bees like them" in visitor.hear(own=True, kind="message")["text"], visitor.heard
        visitor.say("Goodbye!")
        assert visitor.over() == "returned"
    [[returned]] = installation.sql("select returned from traces where id = :trace", trace=trace)
    assert returned == {"messages": 3, "ended_by": "goodbye", "person_was_heard": True, "all_answered": True}
    [[detail]] = installation.sql(
        "select detail from events where trace_id = :trace and kind = 'environment rebuilt'", trace=trace
    )
    assert detail.endswith("all came out as before")
    said = installation.sql(
        "select own, text from messages m join channels c on c.id = m.channel_id "
        "where c.trace_id = :trace and kind = 'message' order by number",
        trace=trace,
    )
    assert [text for own, text in said if not own] == [
        "I like those with grass on them.",
        "Bees like them too.",
        "Goodbye!",
    ]
    mine = [text for own, text in said if own]
    assert len(mine) == len(set(mine)) == 4


def test_a_conversation_ends_after_its_limit_of_messages(installation: Installation) -> None:
    trace = enqueue(installation, "-p", "messages=1", "-p", "channel=hall")
    with person(installation, trace, "--channel", "hall") as visitor:
        visitor.hear(own=True, id=1)
        visitor.say("One")
        reply = visitor.hear(own=True, about=2, kind="message")  # a reaction may come before it
        visitor.say("Two")
        assert visitor.over() == "returned"
    [[returned]] = installation.sql("select returned from traces where id = :trace", trace=trace)
    assert (returned["messages"], returned["ended_by"]) == (2, "limit")
    done = installation.cli("chat", str(trace))
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == f"trace {trace} is over: returned"
    assert "[2] person: One" in done.stdout
    assert f"[{reply['id']}] agent (answering [2]): " in done.stdout


def test_the_end_of_the_input_ends_the_chat_but_not_the_trace(installation: Installation) -> None:
    trace = enqueue(installation)
    with person(installation, trace) as visitor:
        visitor.hear(own=True, id=1)
        assert visitor.process.stdin is not None
        visitor.process.stdin.write("Goodbye then")
        visitor.process.stdin.close()
        assert visitor.hear(end_of_input=True)
        assert visitor.process.wait() == 0
    with person(installation, trace) as visitor:
        assert visitor.hear(text="Goodbye then")["author"] == "person"
        assert visitor.over() == "returned"


def test_a_channel_must_be_named_if_there_are_several(installation: Installation) -> None:
    file = installation.home / "two.py"
    file.write_text(
        "from tools.discord import WeaveDiscordClient\n"
        "def action_open(self):\n"
        "    for name in ('attic', 'cellar'):\n"
        "        WeaveDiscordClient(self, 'no-token-of-mine', name).send_message(f'Hello, {name}')\n"
        "self.add_action('Open', action_open)\n"
    )
    job = installation.json("enqueue", file, "--ticks", "0")["job"]
    installation.wait(job)
    [[trace]] = installation.sql("select id from traces where job_id = :job", job=job)
    done = installation.cli("chat", str(trace))
    assert (done.returncode, done.stdout) == (2, "")
    assert "choose with --channel attic | cellar" in done.stderr
    done = installation.cli("chat", str(trace), "--channel", "cellar")
    assert done.stdout.splitlines() == ["[1] agent: Hello, cellar", f"trace {trace} is over: ticks"]
    kept = installation.sql("select text from messages union select answer::text from exchanges")
    assert kept
    assert not [text for [text] in kept if "no-token-of-mine" in text]


def test_bad_input_is_a_one_line_error(installation: Installation) -> None:
    for arguments in (["chat", "987654"], ["chat", "x"], ["chat"]):
        done = installation.cli(*arguments)
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1
    assert "there is no trace 987654" in installation.cli("chat", "987654").stderr
