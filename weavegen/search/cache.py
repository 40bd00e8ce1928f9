"""A process's cache of immutable rows of the index."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterable
from typing import Any, TypeVar

from weavegen.database import Database

MAX_BYTES = 192 << 20
"""Size of the cache of one database. Without the words, the index of 1,000,000 blocks takes about 40 MB."""
ENTRY_BYTES = 100
"""Bytes counted for each entry in addition to its value."""
K = TypeVar("K", bound=Hashable)


class Cache:
    """A thread-safe mapping that drops the least recently used entries."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._entries: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, keys: Iterable[K]) -> dict[K, Any]:
        """The cached entries for these keys."""
        values = {}
        with self._lock:
            for key in keys:
                if key in self._entries:
                    self._entries.move_to_end(key)
                    values[key] = self._entries[key][0]
        return values

    def put(self, key: Hashable, value: Any, size: int) -> None:
        """Store a value of `size` bytes."""
        with self._lock:
            if key in self._entries:
                self._bytes -= self._entries.pop(key)[1]
            self._entries[key] = (value, size + ENTRY_BYTES)
            self._bytes += size + ENTRY_BYTES
            while self._bytes > self._max_bytes:
                self._bytes -= self._entries.popitem(last=False)[1][1]

    def fetch(self, keys: Collection[K], read: Callable[[list[K]], Iterable[tuple[K, Any, int]]]) -> dict[K, Any]:
        """The values by key. `read` gives (key, value, bytes) for those of the missing keys that exist."""
        values = self.get(keys)
        if missing := [key for key in keys if key not in values]:
            for key, value, size in read(missing):
                values[key] = value
                self.put(key, value, size)
        return values


def cache_of(database: Database) -> Cache:
    """The cache of a database. Keys contain row ids, which differ between databases."""
    cache: Cache = database.kept.setdefault("index", Cache())
    return cache
