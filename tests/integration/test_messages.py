"""Messages in a real database: sent once, read equally by a repeated step, bridged by one worker at a time."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from tests.support.discord import TOKEN, DiscordSimulation
from weavegen import sql
from weavegen.channels.discord import MAX_LISTED_MESSAGES, Discord
from weavegen.channels.exchange import Exchange
from weavegen.config import Config
from weavegen.database import Database, Statement
from weavegen.engine import discord_bridge
from weavegen.errors import UsageError
from weavegen.store import jobs, messages
from weavegen.store.jobs import Order

LOBBY = "lobby"
DISCORD = "123456789012345678"


class Trace:
    """A trace and its steps, without workers."""

    def __init__(self, db: Database, n: int = 3):
        self.db = db
        with db.begin() as conn:
            values: dict[str, Any] = {"agent": "weave", "model": None, "seed": 1, "settings": {}, "version": "0"}
            jobs.enqueue(conn, [Order("a.py", "pass")], name="test", **values)
            self.id = conn.execute(Statement("update traces set status = 'running' returning id")).scalar_one()
            self.steps = [
                conn.execute(
                    Statement(
                        "insert into steps (trace_id, tick, run, ordinal, kind, label, request, queue) "
                        "values (:trace, 0, 0, :n, 'execute', '', '{}', 'execute') returning id"
                    ),
                    {"trace": self.id, "n": number},
                ).scalar_one()
                for number in range(n)
            ]

    def do(self, step: int, turn: int, do: str, channel: str = LOBBY, patient: bool = False, **more: Any) -> Any:
        """The value of the answer, or its error."""
        values = {"number": turn, "turn": turn, "do": do, "channel": channel, **more}
        wish = msgspec.convert(values, Exchange)
        with self.db.begin() as conn:
            answer = messages.exchange(conn, self.id, self.steps[step], wish, patient)
        return answer if answer is None else answer.get("values", answer.get("error"))

    def receive(self, text: str, channel: str = LOBBY) -> int:
        with self.db.begin() as conn:
            return messages.add(conn, messages.channels(conn, self.id)[channel], text, author="Kim")

    def sent(self, channel: str = LOBBY) -> list[str]:
        with self.db.connect() as conn:
            return [sent.text for sent in messages.since(conn, messages.channels(conn, self.id)[channel], 0)]


@pytest.fixture
def trace(db: Database) -> Trace:
    trace = Trace(db)
    assert trace.do(0, 1, "open") is None
    return trace


def test_a_repeated_step_sends_once_and_reads_the_same(trace: Trace) -> None:
    def step() -> list[Any]:
        return [
            trace.do(1, 1, "send", text="Hello"),
            trace.do(1, 2, "react", about=1, text=":)"),
            trace.do(1, 3, "read"),
            trace.do(1, 4, "reply", about=9, text="What?"),
        ]

    first = step()
    trace.receive("Hello yourself")
    assert step() == first
    assert trace.sent() == ["Hello", ":)", "Hello yourself"]
    assert [(sent["id"], sent["own"], sent["reactions"]) for sent in first[2]] == [(1, True, [":)"])]
    assert first[3] == "there is no message 9 in this channel"
    assert [sent["content"] for sent in trace.do(2, 1, "read")] == ["Hello", "Hello yourself"]


def test_a_step_that_differs_from_its_record_sends_nothing(trace: Trace) -> None:
    trace.do(1, 1, "read")
    assert "it was a read, not a send" in trace.do(1, 1, "send", text="Hello")
    assert trace.do(1, 2, "send", "elsewhere", text="Hello") == "there is no channel 'elsewhere': open it"
    assert trace.sent() == []


def test_two_workers_with_the_same_step_send_once(trace: Trace) -> None:
    with ThreadPoolExecutor(8) as pool:
        sent = list(pool.map(lambda _: trace.do(1, 1, "send", text="Hello"), range(8)))
    assert sent == [1] * 8
    assert trace.sent() == ["Hello"]


def test_reading_waits_for_a_message_of_another(trace: Trace) -> None:
    mine = trace.do(1, 1, "send", text="Hello")
    assert trace.do(1, 2, "read", patient=True, after=mine) is None
    theirs = trace.receive("Hello yourself")
    assert [message["id"] for message in trace.do(1, 2, "read", patient=True, after=mine)] == [theirs]
    assert trace.do(1, 3, "read", after=theirs) == []


def test_reads_are_limited(trace: Trace) -> None:
    for number in range(30):
        trace.receive(str(number))
    assert [message["content"] for message in trace.do(1, 1, "read", limit=2)] == ["28", "29"]
    assert [message["content"] for message in trace.do(1, 2, "read", after=28)] == ["28", "29"]
    assert [message["content"] for message in trace.do(1, 4, "read", before=3)] == ["0", "1"]
    assert [message["content"] for message in trace.do(1, 5, "read", before=20, limit=2)] == ["17", "18"]
    assert [message["content"] for message in trace.do(1, 6, "read", after=3, before=6)] == ["3", "4"]
    for bad in ({"limit": 101}, {"wait": 61}, {"text": "x" * 2_001}, {"text": "\x00"}, {"channel": ""}):
        with pytest.raises(msgspec.ValidationError):
            trace.do(1, 3, "read", **bad)


def test_why_a_trace_ended(trace: Trace) -> None:
    with trace.db.begin() as conn:
        assert messages.end_reason(conn, trace.id) is None
        conn.execute(Statement("update traces set status = 'ended', ended_because = 'ticks'"))
        assert messages.end_reason(conn, trace.id) == "ticks"
        with pytest.raises(UsageError, match="no trace 99"):
            messages.end_reason(conn, 99)


class TestChannels:
    def test_only_open_discord_channels_are_held_and_by_one_worker(self, trace: Trace) -> None:
        trace.do(0, 2, "open", DISCORD)
        with trace.db.begin() as conn:
            [held] = messages.hold_due(conn)
            assert held.name == DISCORD
            assert held.after > 0, "Are messages older than the channel skipped?"
        with trace.db.begin() as conn:
            assert messages.hold_due(conn) == []
            sql.run(conn, "store/look_again", channel=held.id, seconds=-1, failure=None)
        trace.do(1, 1, "close", DISCORD)
        with trace.db.begin() as conn:
            assert messages.hold_due(conn) == []
        trace.do(1, 2, "open", DISCORD)
        trace.do(1, 3, "send", DISCORD, text="Hello")
        trace.do(1, 4, "close", DISCORD)
        with trace.db.begin() as conn:
            assert len(messages.hold_due(conn)) == 1
            sql.run(conn, "store/look_again", channel=held.id, seconds=-1, failure="Discord answers 403")
            assert messages.hold_due(conn) == []

    def test_a_rate_limit_for_all_postpones_all_channels(self, trace: Trace) -> None:
        trace.do(0, 2, "open", DISCORD)
        with trace.db.begin() as conn:
            sql.run(conn, "store/postpone_channels", seconds=60)
        with trace.db.begin() as conn:
            assert messages.hold_due(conn) == []

    def test_outgoing_and_incoming_messages(self, trace: Trace) -> None:
        trace.do(0, 2, "open", DISCORD)
        hello = trace.do(1, 1, "send", DISCORD, text="Hello")
        trace.receive("typed in the terminal", DISCORD)
        with trace.db.begin() as conn:
            [held] = messages.hold_due(conn)
            out = sql.run(conn, "store/next_outgoing", channel=held.id).one_or_none()
            assert out is not None
            sql.run(conn, "store/mark_sent", message=out.id, discord_id="900")
            for _ in range(2):
                messages.store_received(conn, held.id, "1000", "Kim", "Hello yourself", about="900")
            messages.store_received(conn, held.id, "1001", "agent", "I am the agent", about=None)
            messages.store_received(conn, held.id, "1002", "a bot", "")
            assert sql.run(conn, "store/next_outgoing", channel=held.id).one_or_none() is None
        read = trace.do(1, 2, "read", DISCORD)
        assert [(sent["author"], sent["own"], sent["reply_to"]) for sent in read] == [
            ("agent", True, None),
            ("Kim", False, None),
            ("Kim", False, hello),
            ("agent", False, None),
        ]
        trace.do(1, 3, "react", DISCORD, about=read[2]["id"], text=":)")
        with trace.db.begin() as conn:
            sql.run(conn, "store/look_again", channel=held.id, seconds=-1, failure=None)
            [held] = messages.hold_due(conn)
            assert held.after == 1002
            reaction = sql.run(conn, "store/next_outgoing", channel=held.id).one_or_none()
            assert reaction is not None
            assert (reaction.kind, reaction.about) == ("reaction", "1000")


class TestBridge:
    """The Celery task, with a simulation of Discord."""

    OTHER = "223456789012345678"

    @pytest.fixture(autouse=True)
    def bridge(self, db: Database, config: Config, monkeypatch: pytest.MonkeyPatch) -> Iterator[DiscordSimulation]:
        simulation = DiscordSimulation()
        bridged = replace(config, discord_token=TOKEN, discord_url=simulation.url)
        self.config = bridged
        monkeypatch.setattr(discord_bridge, "database", lambda: db)
        monkeypatch.setattr(discord_bridge, "single", lambda: db.with_autocommit(True))
        yield simulation
        simulation.close()

    def test_a_message_that_discord_refuses_is_skipped_alone(self, trace: Trace, bridge: DiscordSimulation) -> None:
        trace.do(0, 2, "open", DISCORD)
        for turn, text in enumerate(("one", "two"), 1):
            trace.do(1, turn, "send", DISCORD, text=text)
        trace.do(1, 3, "react", DISCORD, about=1, text=":nonsense:")
        trace.do(1, 4, "reply", DISCORD, about=1, text="three")
        bridge.answers.append((400, {"message": "Invalid Form Body"}))
        assert discord_bridge.bridge(self.config) == "1 channels"
        assert [message["content"] for message in bridge.messages[DISCORD]] == ["two", "three"]
        assert bridge.reactions == [], "Is there nothing to react to?"
        with trace.db.connect() as conn:
            [detail] = conn.execute(Statement("select detail from events where kind = 'not sent'")).scalars()
        assert "'one'" in detail
        assert "Invalid Form Body" in detail
        assert discord_bridge.bridge(self.config) == "0 channels", "Does it wait before it asks again?"

    def test_reactions_of_people_are_fetched(self, trace: Trace, bridge: DiscordSimulation) -> None:
        def look() -> list[tuple[str, list[str]]]:
            with trace.db.begin() as conn:
                conn.execute(Statement("update channels set look_at = now() - interval '1 s'"))
            assert discord_bridge.bridge(self.config) == "1 channels"
            self.turn += 1
            return [(one["content"], one["reactions"]) for one in trace.do(2, self.turn, "read", DISCORD)]

        self.turn = 0
        trace.do(0, 2, "open", DISCORD)
        trace.do(1, 1, "send", DISCORD, text="one")
        trace.do(1, 2, "react", DISCORD, about=1, text="+1")
        assert look() == [("one", ["+1"])]
        mine = bridge.messages[DISCORD][0]["id"]
        theirs = bridge.say(DISCORD, "Kim", "two")
        bridge.react(DISCORD, mine, "+1", me=True)
        bridge.react(DISCORD, mine, "+1")
        bridge.react(DISCORD, mine, "tada")
        bridge.react(DISCORD, theirs, "tada")
        for _ in range(2):
            assert look() == [("one", ["+1", "+1", "tada"]), ("two", ["tada"])]
        bridge.react(DISCORD, theirs, "tada")
        later = bridge.say(DISCORD, "Kim", "three")
        assert look() == [("one", ["+1", "+1", "tada"]), ("two", ["tada", "tada"]), ("three", [])]
        three = trace.do(1, 3, "read", DISCORD)[2]["id"]
        trace.do(1, 4, "reply", DISCORD, text="four", about=three)
        assert [content for content, _ in look()] == ["one", "two", "three", "four"]
        assert bridge.messages[DISCORD][3]["message_reference"] == {"message_id": later}, "Are the numbers unique?"
        for number in range(25):
            bridge.say(DISCORD, "Kim", str(number))
        look()
        bridge.react(DISCORD, mine, "late")
        look()
        with trace.db.connect() as conn:
            late = conn.execute(Statement("select count(*) from messages where text = 'late'")).scalar_one()
        assert late == 0, "Are only the newest 20 watched?"

    def test_many_messages_that_are_not_stored_hide_no_later_ones(
        self, trace: Trace, bridge: DiscordSimulation
    ) -> None:
        def look() -> list[str]:
            with trace.db.begin() as conn:
                conn.execute(Statement("update channels set look_at = now() - interval '1 s'"))
            assert discord_bridge.bridge(self.config) == "1 channels"
            self.turn += 1
            return [one["content"] for one in trace.do(2, self.turn, "read", DISCORD)]

        self.turn = 0
        trace.do(0, 2, "open", DISCORD)
        bridge.say(DISCORD, "Kim", "one")
        for _ in range(MAX_LISTED_MESSAGES + 1):
            bridge.say(DISCORD, "a bot", "beep", bot=True)
        assert [look(), look()] == [["one"], ["one"]]
        bridge.say(DISCORD, "Kim", "two")
        assert look() == ["one", "two"]
        with trace.db.connect() as conn:
            soon = Statement("select look_at > now() + interval '1 s' from channels where name = :name")
            assert conn.execute(soon, {"name": DISCORD}).scalar_one(), "Does it pause?"

    def test_a_worker_that_died_after_posting_posts_nothing_twice(
        self, trace: Trace, bridge: DiscordSimulation
    ) -> None:
        trace.do(0, 2, "open", DISCORD)
        trace.do(1, 1, "send", DISCORD, text="one")
        with trace.db.connect() as conn:
            [id] = conn.execute(Statement("select id from messages")).scalars()
        Discord(bridge.url, TOKEN).post(DISCORD, "one", nonce=f"weavegen-{id}")
        discord_bridge.bridge(self.config)
        assert [message["content"] for message in bridge.messages[DISCORD]] == ["one"]
        bridge.say(DISCORD, "Kim", "two", about=bridge.messages[DISCORD][0]["id"])
        with trace.db.begin() as conn:
            conn.execute(Statement("update channels set look_at = now()"))
        discord_bridge.bridge(self.config)
        assert [(m["content"], m["reply_to"]) for m in trace.do(1, 2, "read", DISCORD)] == [("one", None), ("two", 1)]

    def test_a_rate_limit_for_all_is_respected_by_all(self, trace: Trace, bridge: DiscordSimulation) -> None:
        trace.do(0, 2, "open", DISCORD)
        trace.do(0, 3, "open", self.OTHER)
        bridge.answers.append((429, {"retry_after": 40, "global": True}))
        assert discord_bridge.bridge(self.config) == "2 channels"
        assert len(bridge.requests) == 1
        with trace.db.connect() as conn:
            paused = Statement(
                "select count(*) from channels where look_at > now() + interval '30 s' and name <> 'lobby'"
            )
            assert conn.execute(paused).scalar_one() == 2
