"""The command that talks with a trace."""

import os
import select
import sys
import time
from collections import deque
from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
import sqlalchemy as sa
import typer

from weavegen.cli.app import Json, app, reading
from weavegen.cli.complete import trace_numbers
from weavegen.errors import UsageError
from weavegen.monitoring import display

POLL = 0.2
"""Seconds between two looks at the channel."""
LONGEST = 2_000
"""Characters of a message; a longer line becomes several."""


@app.command()
def chat(
    trace: Annotated[int, typer.Argument(help="A trace's number.", autocompletion=trace_numbers)],
    channel: Annotated[str | None, typer.Option(help="Which channel, where the trace has several.")] = None,
    json: Json = False,
) -> None:
    """Talk with a running trace: see what its agent writes, and type what it is to read, line by line.

    Ends with the trace, or with the input (Ctrl-D). With --json each message is a line of JSON.

    Example: weavegen chat 7
    """
    with reading() as conn:
        Talk(conn, trace, channel, json).run()


class Lines:
    """Lines of standard input as they arrive, without a thread that could block the end of the program."""

    def __init__(self) -> None:
        self.open = True
        self._rest = b""

    def arrived(self, seconds: float) -> Iterator[str]:
        """Waits so long at most."""
        if not self.open:
            time.sleep(seconds)
            return
        if not select.select([sys.stdin.fileno()], [], [], seconds)[0]:
            return
        data = os.read(sys.stdin.fileno(), 65_536)
        self.open = bool(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        if not self.open:
            lines.append(self._rest)
        for line in lines:
            if text := line.decode(errors="replace").replace("\x00", "").strip():
                yield text


class Talk:
    """One conversation in a terminal."""

    def __init__(self, conn: sa.Connection, trace: int, channel: str | None, json: bool):
        self.conn, self.trace, self.wanted, self.json = conn, trace, channel, json
        self.lines = Lines()
        self.typed: deque[str] = deque()
        self.channel: int | None = None
        """Id of the channel; None as long as the trace has not opened it."""
        self.seen = 0
        self.mine: set[int] = set()

    def run(self) -> None:
        from weavegen.store import messages

        while True:
            over = messages.over(self.conn, self.trace)  # first: what comes after this is shown once more
            if self.channel is None:
                self.find()
            if self.channel is not None:
                self.put()
                self.show()
            self.conn.rollback()
            if over is not None:
                self.tell({"over": over}, f"trace {self.trace} is over: {over}")
                return
            if not self.lines.open and not self.typed:
                self.tell({"end_of_input": True}, "end of input; the trace goes on")
                return
            self.typed += self.lines.arrived(POLL)

    def find(self) -> None:
        """Look for the channel."""
        from weavegen.store import messages

        known = messages.channels(self.conn, self.trace)
        if self.wanted is None and len(known) > 1:
            raise UsageError(f"trace {self.trace} has several channels: choose with --channel {' | '.join(known)}")
        if self.wanted is None:
            self.channel = next(iter(known.values()), None)
        else:
            self.channel = known.get(self.wanted)

    def put(self) -> None:
        """Put what was typed into the channel."""
        from weavegen.store import messages

        assert self.channel is not None
        while self.typed:
            line = self.typed.popleft()
            for start in range(0, len(line), LONGEST):
                part = line[start : start + LONGEST]
                self.mine.add(messages.add(self.conn, self.channel, part, author="person"))
        self.conn.commit()

    def show(self) -> None:
        """Print what others have written since."""
        from weavegen.store import messages

        assert self.channel is not None
        for said in messages.since(self.conn, self.channel, self.seen):
            self.seen = said.id
            if said.id in self.mine:
                continue
            if said.kind == "reaction":
                text = f"{said.author} reacts to [{said.about}]: {said.text}"
            else:
                about = f" (answering [{said.about}])" if said.about else ""
                text = f"[{said.id}] {said.author}{about}: {said.text}"
            self.tell(said, text)

    def tell(self, value: Any, text: str) -> None:
        """Print a line of JSON or of text."""
        if self.json:
            line = display.harmless_json(msgspec.json.encode(value).decode())
        else:  # indented below its first line, so that no message can look like two
            line = display.harmless(text).replace("\n", "\n    ")
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
