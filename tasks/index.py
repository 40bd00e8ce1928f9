"""The task that takes what has been recorded into the corpus index (weavegen/search/indexing.py)."""

import time

from tasks.app import app
from weavegen.search import indexing
from weavegen.store.session import engine as database

SECONDS = 3.0
"""After these it begins nothing new: linting waits for the same processes."""


@app.task(name="weavegen.index")
def index() -> str:
    """Seal and merge for some seconds, unless another process is at it. Beat sends it every other second."""
    made, ended = 0, time.monotonic() + SECONDS
    while time.monotonic() < ended:
        with database().begin() as conn:
            if not indexing.work(conn):
                break
        made += 1
    return f"{made} segments made"
