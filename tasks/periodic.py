"""The tasks that beat sends every second or so."""

import time

from tasks.app import app, config
from tasks.worker import rescorer, worker
from weavegen.engine import discord_bridge
from weavegen.search import indexing
from weavegen.store.session import database
from weavegen.store.views import refresh_next

INDEX_SECONDS = 3.0
"""After this time, indexing starts no further segment: linting needs the same processes."""


@app.task(name="weavegen.sweep")
def sweep() -> str:
    """Send lost steps again, start queued traces, close the environments of ended ones."""
    return worker().sweep()


@app.task(name="weavegen.sweep_campaigns")
def sweep_campaigns() -> str:
    """Send batches of campaigns, and again those that were lost."""
    return f"{rescorer().send_batches()} batches sent"


@app.task(name="weavegen.index")
def index() -> str:
    """Add recorded blocks to the corpus index for some seconds, unless another process does."""
    segments, deadline = 0, time.monotonic() + INDEX_SECONDS
    while time.monotonic() < deadline:
        with database().begin() as conn:
            if not indexing.work(conn):
                break
        segments += 1
    return f"{segments} segments made"


@app.task(name="weavegen.refresh")
def refresh() -> str:
    """Refresh the materialised views that are due."""
    refreshed = []
    with database().connect() as conn:
        while (view := refresh_next(conn)) is not None:
            refreshed.append(view.view)
    return f"refreshed: {', '.join(refreshed) or 'nothing'}"


@app.task(name="weavegen.discord")
def discord() -> str:
    """Exchange messages with Discord. Beat sends it only where WEAVEGEN_DISCORD_TOKEN is set."""
    return discord_bridge.bridge(config)
