"""The client of Discord's API, against the simulation."""

from collections.abc import Iterator

import pytest

from tests.support.discord import TOKEN, DiscordSimulation
from weavegen.channels.discord import Discord, DiscordRefusal, RateLimited
from weavegen.errors import TransientError

CHANNEL = "123456789012345678"


@pytest.fixture
def simulation() -> Iterator[DiscordSimulation]:
    simulation = DiscordSimulation()
    yield simulation
    simulation.close()


@pytest.fixture
def discord(simulation: DiscordSimulation) -> Discord:
    return Discord(simulation.url, TOKEN)


def test_posting_twice_with_the_same_nonce_creates_one_message(simulation: DiscordSimulation, discord: Discord) -> None:
    first = discord.post(CHANNEL, "Hello @everyone", nonce="weavegen-1")
    assert discord.post(CHANNEL, "Hello @everyone", nonce="weavegen-1") == first
    second = discord.post(CHANNEL, "Hello again", nonce="weavegen-2", about=first)
    assert [message["id"] for message in simulation.messages[CHANNEL]] == [first, second]
    assert {str(body["allowed_mentions"]) for body in simulation.bodies} == {"{'parse': []}"}
    assert simulation.messages[CHANNEL][1]["message_reference"] == {"message_id": first}


def test_reactions_are_quoted_in_urls(simulation: DiscordSimulation, discord: Discord) -> None:
    discord.react(CHANNEL, "5", "\N{THUMBS UP SIGN}")
    discord.react(CHANNEL, "5", "a/b?")
    assert simulation.reactions == [(CHANNEL, "5", "\N{THUMBS UP SIGN}"), (CHANNEL, "5", "a/b?")]


def test_messages_are_listed_oldest_first_and_after_an_id(simulation: DiscordSimulation, discord: Discord) -> None:
    ids = [simulation.say(CHANNEL, "Kim", text) for text in ("one", "two", "three")]
    listed = discord.list(CHANNEL, int(ids[0]))
    assert [(message.id, message.content, message.author.username) for message in listed] == [
        (ids[1], "two", "Kim"),
        (ids[2], "three", "Kim"),
    ]


def test_errors_that_discord_returns(simulation: DiscordSimulation, discord: Discord) -> None:
    simulation.answers += [
        (429, {"retry_after": 1.25, "global": False}),
        (429, {"retry_after": 30, "global": True}),
        (403, {"message": "Missing Access"}),
        (502, {}),
    ]
    with pytest.raises(RateLimited) as caught:
        discord.list(CHANNEL, 0)
    assert (caught.value.seconds, caught.value.everywhere) == (1.25, False)
    with pytest.raises(RateLimited) as caught:
        discord.list(CHANNEL, 0)
    assert caught.value.everywhere
    with pytest.raises(DiscordRefusal, match=r"403.*Missing Access"):
        discord.list(CHANNEL, 0)
    with pytest.raises(TransientError, match="502"):
        discord.list(CHANNEL, 0)
    with pytest.raises(DiscordRefusal, match="401") as refused:
        Discord(simulation.url, "wrong").list(CHANNEL, 0)
    assert "wrong" not in str(refused.value)


def test_an_unreachable_server() -> None:
    with pytest.raises(TransientError, match="can't be reached"):
        Discord("http://127.0.0.1:9", TOKEN).list(CHANNEL, 0)
