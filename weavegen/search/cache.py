"""What a process keeps of the index: nothing in it ever changes."""

import threading
from collections import OrderedDict
from collections.abc import Hashable, Iterable
from typing import Any
from weakref import WeakKeyDictionary

import sqlalchemy as sa

ROOM = 192 << 20
"""Bytes of one database's index that a process keeps. 1,000,000 blocks have about 40 MB besides their words."""
EACH = 100
"""Bytes that are counted for an entry besides its value."""


class Cache:
    """Values by key, those used least recently dropped. Threads share it."""

    def __init__(self, room: int = ROOM) -> None:
        self._room = room
        self._used = 0
        self._kept: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, keys: Iterable[Hashable]) -> dict[Any, Any]:
        """Those that there are."""
        found = {}
        with self._lock:
            for key in keys:
                if key in self._kept:
                    self._kept.move_to_end(key)
                    found[key] = self._kept[key][0]
        return found

    def put(self, key: Hashable, value: Any, size: int) -> None:
        """Keep a value of `size` bytes."""
        with self._lock:
            if key in self._kept:
                self._used -= self._kept.pop(key)[1]
            self._kept[key] = (value, size + EACH)
            self._used += size + EACH
            while self._used > self._room:
                self._used -= self._kept.popitem(last=False)[1][1]


_caches: WeakKeyDictionary[sa.Engine, Cache] = WeakKeyDictionary()
_lock = threading.Lock()


def cache_of(engine: sa.Engine) -> Cache:
    """The cache of a database: keys are ids of rows, which another one has, too."""
    with _lock:
        return _caches.setdefault(engine, Cache())
