"""Prompts as text, from blocks that this process has read already where it can."""

import threading
from collections import OrderedDict

import sqlalchemy as sa

from tasks.worker import engine
from weavegen.context import PINNED, compose
from weavegen.steps import Prompt
from weavegen.store import blocks
from weavegen.store.session import single
from weavegen.store.steps import Claimed
from weavegen.store.traces import Fixed

TRACES_KEPT = 512


class Context:
    """Keeps the rendered blocks of the traces that this process has met lately.

    A block never changes within one run of a tick, so what was read under a (tick, run) is good for it.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[int, tuple[tuple[int, int], dict[int, str]]] = OrderedDict()
        self._lock = threading.Lock()

    def prompt(self, held: Claimed, prompt: Prompt) -> tuple[str, Fixed]:
        """The text that the model reads before the body of the block to come, without the body's fixed prefix."""
        with self._lock:
            run, texts = self._kept.pop(held.trace_id, ((-1, -1), {}))
            if run != (held.tick, held.run):
                texts = {}
            self._kept[held.trace_id] = ((held.tick, held.run), texts)
            if len(self._kept) > TRACES_KEPT:
                self._kept.popitem(last=False)
        first, end = prompt.window
        with single().connect() as conn:
            fixed = engine().fixed(conn, held.trace_id)
            self._read(conn, held.trace_id, texts, 0, min(PINNED, end))
            self._read(conn, held.trace_id, texts, first, end)
            recalled = blocks.recalled(conn, prompt.recalled)
        pinned = [texts[index] for index in range(min(PINNED, end))]
        tail = [texts[index] for index in range(first, end)]
        return compose(prompt, pinned, tail, recalled, fixed.settings), fixed

    @staticmethod
    def _read(conn: sa.Connection, trace_id: int, texts: dict[int, str], first: int, end: int) -> None:
        missing = next((index for index in range(first, end) if index not in texts), None)
        if missing is not None:
            texts.update(enumerate(blocks.texts(conn, trace_id, missing, end), missing))
