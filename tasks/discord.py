"""The bridge to Discord: takes what agents said there, and fetches what people answered.

Beat sends it only where WEAVEGEN_DISCORD_TOKEN is set (tasks/app.py). A channel is held by one worker at a time.
"""

import logging

from tasks.app import app
from tasks.worker import settings
from weavegen.channels.discord import PAGE, Discord, Refused, Slower
from weavegen.errors import TransientError
from weavegen.store import messages, traces
from weavegen.store.messages import Bridged
from weavegen.store.session import engine as database
from weavegen.store.session import single

log = logging.getLogger(__name__)
INTERVAL = 2.0
"""Seconds between two looks at a channel."""
AFTER_ERROR = 15.0
BAD_REQUEST = 400


@app.task(name="weavegen.discord")
def discord() -> str:
    """Look at every open channel that is due."""
    config = settings()
    if config.discord_token is None:
        return "no token"
    client = Discord(config.discord_url, config.discord_token)
    with database().begin() as conn:
        channels = messages.hold(conn)
    pause = 0.0
    for channel in channels:
        if pause:
            with single().connect() as conn:
                messages.rest(conn, channel.id, pause)
        else:
            pause = look(client, channel)
    return f"{len(channels)} channels"


def look(client: Discord, channel: Bridged) -> float:
    """Bring one channel up to date, and say when to look again. Returns seconds to pause in the others, too."""
    seconds, failure, pause = INTERVAL, None, 0.0
    try:
        post(client, channel)
        seconds = fetch(client, channel)
    except Slower as slower:
        seconds = slower.seconds
        if slower.everywhere:
            pause = seconds
            with single().connect() as conn:
                messages.rest_all(conn, seconds)
    except TransientError as error:
        log.warning("channel %s: %s", channel.name, error)
        seconds = AFTER_ERROR
    except Refused as error:
        failure = str(error)
        with single().connect() as conn:
            traces.event(conn, channel.trace_id, "channel given up", f"{channel.name}: {failure}")
    with single().connect() as conn:
        messages.rest(conn, channel.id, seconds, failure)
    return pause


def post(client: Discord, channel: Bridged) -> None:
    """Take what the agent said to Discord. Each message has a nonce: a worker that died here posts none twice."""
    with single().connect() as conn:
        while one := messages.outgoing(conn, channel.id):
            known = None
            try:
                if one.kind == "message":
                    known = client.post(channel.name, one.text, nonce=f"weavegen-{one.id}", about=one.about)
                elif one.about is not None:
                    client.react(channel.name, one.about, one.text)
            except Refused as error:
                if one.kind == "message" and error.status != BAD_REQUEST:
                    raise
                # An emoji that there isn't, a text that it does not take: that alone is left out.
                traces.event(conn, channel.trace_id, "not sent", f"{channel.name}: {one.text[:50]!r}: {error}")
            messages.sent(conn, one.id, known)


def fetch(client: Discord, channel: Bridged) -> float:
    """Fetch what people wrote. Returns in how many seconds to look again."""
    listed = client.list(channel.name, channel.after)
    for one in listed:
        about = one.message_reference.message_id if one.message_reference else None
        text = "" if one.author.bot else one.content.replace("\x00", "")
        with database().begin() as conn:
            name = one.author.global_name or one.author.username
            messages.received(conn, channel.id, one.id, name, text, about)
    return 0.0 if len(listed) == PAGE else INTERVAL
