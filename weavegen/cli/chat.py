"""The command chat: a conversation with a running trace."""

import os
import select
import sys
import time
from typing import Annotated, Any

import msgspec
import typer

from weavegen.cli.app import command, reading
from weavegen.cli.complete import trace_numbers
from weavegen.database import Connection
from weavegen.errors import UsageError
from weavegen.store import messages
from weavegen.text import harmless, harmless_json

POLL_SECONDS = 0.2
"""Time between reads of the channel."""
MAX_MESSAGE_CHARS = 2_000
"""A longer line becomes several messages."""


@command()
def chat(
    trace: Annotated[int, typer.Argument(help="The number of a trace.", autocompletion=trace_numbers)],
    channel: Annotated[str | None, typer.Option(help="The channel's name, if the trace has several.")] = None,
    json: bool = False,
) -> None:
    """Talk with a running trace: read what its agent writes, and type lines that the agent will read.

    It ends with the trace, or at the end of the input (Ctrl-D). With --json each message is a line of JSON.

    Example: weavegen chat 7
    """
    with reading() as conn:
        Talk(conn, trace, channel, json).run()


class Talk:
    """One conversation in a terminal."""

    def __init__(self, conn: Connection, trace: int, channel: str | None, json: bool):
        self.conn, self.trace, self.channel_name, self.json = conn, trace, channel, json
        self.input_open, self.rest = True, b""
        self.typed: list[str] = []
        self.channel: int | None = None
        """The channel's id; None until the trace has opened it."""
        self.last_seen = 0
        self.own_messages: set[int] = set()

    def run(self) -> None:
        while True:
            # Read first, so that messages written before the trace ended are still shown.
            over = messages.end_reason(self.conn, self.trace)
            if self.channel is None:
                self.find_channel()
            if self.channel is not None:
                self.send(self.channel)
                self.receive(self.channel)
            self.conn.rollback()
            if over is not None:
                self.print({"over": over}, f"trace {self.trace} is over: {over}")
                return
            if not self.input_open and not self.typed:
                self.print({"end_of_input": True}, "end of input; the trace goes on")
                return
            self.read()

    def read(self) -> None:
        """Read lines as they are typed, without a thread, which could block the end of the program."""
        if not self.input_open:
            time.sleep(POLL_SECONDS)
        elif select.select([sys.stdin.fileno()], [], [], POLL_SECONDS)[0]:
            data = os.read(sys.stdin.fileno(), 65_536)
            self.input_open = bool(data)
            # At the end of the input, text after the last newline is a line, too.
            *lines, self.rest = (self.rest + (data or b"\n")).split(b"\n")
            texts = (line.decode(errors="replace").replace("\x00", "").strip() for line in lines)
            self.typed += filter(None, texts)

    def find_channel(self) -> None:
        channels = messages.channels(self.conn, self.trace)
        if self.channel_name is None and len(channels) > 1:
            raise UsageError(f"trace {self.trace} has several channels: choose with --channel {' | '.join(channels)}")
        only = next(iter(channels.values()), None)
        self.channel = only if self.channel_name is None else channels.get(self.channel_name)

    def send(self, channel: int) -> None:
        """Put the typed lines into the channel."""
        for line in self.typed:
            for start in range(0, len(line), MAX_MESSAGE_CHARS):
                part = line[start : start + MAX_MESSAGE_CHARS]
                self.own_messages.add(messages.add(self.conn, channel, part, author="person"))
        self.typed.clear()
        self.conn.commit()

    def receive(self, channel: int) -> None:
        """Print the new messages of others."""
        for message in messages.since(self.conn, channel, self.last_seen):
            self.last_seen = message.id
            if message.id in self.own_messages:
                continue
            if message.kind == "reaction":
                text = f"{message.author} reacts to [{message.about}]: {message.text}"
            else:
                about = f" (answering [{message.about}])" if message.about else ""
                text = f"[{message.id}] {message.author}{about}: {message.text}"
            self.print(message._asdict(), text)

    def print(self, value: Any, text: str) -> None:
        """Print a line of JSON, or text whose later lines are indented, so that no message looks like two."""
        line = harmless_json(msgspec.json.encode(value).decode()) if self.json else harmless(text)
        sys.stdout.write((line if self.json else line.replace("\n", "\n    ")) + "\n")
        sys.stdout.flush()
