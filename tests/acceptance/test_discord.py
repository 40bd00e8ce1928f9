"""A conversation over the bridge with a simulated Discord. The real Discord is never called."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support import ROOT
from tests.support.discord import TOKEN, DiscordSimulation
from tests.support.installation import Installation, installed
from tests.support.waiting import until

CONVERSATION = ROOT / "bootstraps" / "conversation.py"
CHANNEL, FORBIDDEN = "123456789012345678", "923456789012345678"


@pytest.fixture(scope="module")
def discord() -> Iterator[DiscordSimulation]:
    simulation = DiscordSimulation()
    yield simulation
    simulation.close()


@pytest.fixture(scope="module")
def bridged(discord: DiscordSimulation) -> Iterator[Installation]:
    """An installation with a Discord token."""
    with installed(WEAVEGEN_DISCORD_TOKEN=TOKEN, WEAVEGEN_DISCORD_URL=discord.url) as started:
        yield started


def test_a_conversation_on_discord(bridged: Installation, discord: DiscordSimulation) -> None:
    discord.say(CHANNEL, "Kim", "This was here before.")
    discord.answers.append((429, {"retry_after": 1.5, "global": False}))
    job = bridged.json(
        "enqueue", CONVERSATION, "--ticks", "40", "--seed", "8", "-p", f'channel="{CHANNEL}"', "-p", "topic=roofs"
    )["job"]

    def mine() -> list[dict[str, Any]]:
        return [message for message in discord.messages[CHANNEL] if message["author"]["bot"]]

    [greeting] = until(mine, seconds=120)
    assert "roofs" in greeting["content"]
    refused, again = (when for when, method, _ in discord.requests[:2] if method == "POST")
    assert again - refused >= 1.5, "Did the bridge wait as long as requested?"

    asked = discord.say(CHANNEL, "Kim", "Grass grows on mine.")
    reply = until(lambda: mine()[1:], seconds=120)[0]
    assert reply["message_reference"] == {"message_id": asked}
    assert "Grass grows" in reply["content"]
    discord.say(CHANNEL, "Kim", "Goodbye!", about=reply["id"])
    until(lambda: "oodbye" in mine()[-1]["content"], seconds=120)
    bridged.wait(job)
    [[returned]] = bridged.sql("select returned from traces where job_id = :job", job=job)
    assert (returned["messages"], returned["ended_by"]) == (2, "goodbye")
    said = bridged.sql("select author, text, about, discord_id is not null from messages order by number")
    assert [(author, known) for author, text, about, known in said if text == "Goodbye!"] == [("Kim", True)]
    assert "This was here before." not in [text for _, text, _, _ in said]
    assert TOKEN not in bridged.logs()


def test_a_channel_that_refuses_the_bot_is_closed(bridged: Installation, discord: DiscordSimulation) -> None:
    discord.answers.append((403, {"message": "Missing Access"}))
    job = bridged.json("enqueue", CONVERSATION, "--ticks", "0", "-p", f'channel="{FORBIDDEN}"')["job"]
    query = "select failure from channels where failure is not null"
    [[failure]] = until(lambda: bridged.sql(query), seconds=120)
    assert "403" in failure
    bridged.wait(job)
    assert len([path for _, _, path in discord.requests if FORBIDDEN in path]) == 1
    assert [(FORBIDDEN in detail) for [detail] in bridged.sql(
        "select detail from events where kind = 'channel given up'"
    )] == [True]  # fmt: skip
