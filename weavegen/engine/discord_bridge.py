"""The bridge to Discord: posts what agents write in channels, and fetches what people answer there.

One worker at a time holds a channel.
"""

import logging
from typing import Any

from weavegen import sql
from weavegen.channels.discord import MAX_LISTED_MESSAGES, Discord, DiscordRefusal, RateLimited
from weavegen.config import Config
from weavegen.errors import TransientError
from weavegen.store import messages, traces
from weavegen.store.session import database, single

log = logging.getLogger(__name__)
POLL_SECONDS = 2.0  # time between checks of a channel
ERROR_SECONDS = 15.0  # until the next check after a transient error
BAD_REQUEST = 400


def bridge(config: Config) -> str:
    """Exchange the messages of every open channel that is due."""
    if config.discord_token is None:
        return "no token"
    client = Discord(config.discord_url, config.discord_token)
    with database().begin() as conn:
        channels = messages.hold_due(conn)
    pause = 0.0
    for channel in channels:
        if pause:
            with single().connect() as conn:
                sql.run(conn, "store/look_again", channel=channel.id, seconds=pause, failure=None)
        else:
            pause = exchange(client, channel)
    return f"{len(channels)} channels"


def exchange(client: Discord, channel: Any) -> float:
    """Bring one channel up to date, and set the time of the next look. Returns seconds to pause all channels."""
    seconds, failure, pause = POLL_SECONDS, None, 0.0
    try:
        post(client, channel)
        seconds = fetch(client, channel)
    except RateLimited as limit:
        seconds = limit.seconds
        if limit.everywhere:
            pause = seconds
            with single().connect() as conn:
                sql.run(conn, "store/postpone_channels", seconds=seconds)
    except TransientError as error:
        log.warning("channel %s: %s", channel.name, error)
        seconds = ERROR_SECONDS
    except DiscordRefusal as error:
        failure = str(error)
        with single().connect() as conn:
            traces.event(conn, channel.trace_id, "channel given up", f"{channel.name}: {failure}")
    with single().connect() as conn:
        sql.run(conn, "store/look_again", channel=channel.id, seconds=seconds, failure=failure)
    return pause


def post(client: Discord, channel: Any) -> None:
    """Post the agent's messages. Each has a nonce, so that Discord drops a message that is posted twice."""
    with single().connect() as conn:
        while message := sql.run(conn, "store/next_outgoing", channel=channel.id).one_or_none():
            known = None
            try:
                if message.kind == "message":
                    nonce = f"weavegen-{message.id}"
                    known = client.post(channel.name, message.text, nonce=nonce, about=message.about)
                elif message.about is not None:
                    client.react(channel.name, message.about, message.text)
            except DiscordRefusal as error:
                if message.kind == "message" and error.status != BAD_REQUEST:
                    raise
                # An unknown emoji, or a text that Discord refuses: only this message is left out.
                detail = f"{channel.name}: {message.text[:50]!r}: {error}"
                traces.event(conn, channel.trace_id, "not sent", detail)
            sql.run(conn, "store/mark_sent", message=message.id, discord_id=known)


def fetch(client: Discord, channel: Any) -> float:
    """Fetch what people wrote, and their reactions. Returns seconds until the next look."""
    listed = newest = client.list(channel.name, channel.watched)
    if len(listed) == MAX_LISTED_MESSAGES and int(listed[-1].id) <= channel.after:
        # So many messages were fetched but not stored, such as those of bots, that the list ends before the new ones.
        newest = client.list(channel.name, channel.after)
        listed = [*listed, *newest]
    for message in listed:
        if int(message.id) <= channel.after and bytes(message.reactions) == b"[]":
            continue
        about = message.message_reference.message_id if message.message_reference else None
        text = "" if message.author.bot else message.content.replace("\x00", "")
        name = message.author.global_name or message.author.username
        with database().begin() as conn:
            messages.store_received(conn, channel.id, message.id, name, text, about)
            reactions = {"discord_id": message.id, "reactions": message.reactions}
            sql.run(conn, "store/receive_reactions", channel=channel.id, **reactions)
    return 0.0 if len(newest) == MAX_LISTED_MESSAGES else POLL_SECONDS
