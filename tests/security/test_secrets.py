"""Planted secrets: traces run and fail in every way, then every place that others can read is searched for secrets."""

import time
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from tests.security.planted import SECRETS, Echo, Planted
from weavegen import config as configuration
from weavegen.channels.discord import Discord, DiscordRefusal
from weavegen.errors import UsageError

PRY = """
import glob
import os

def found(self):
    said = ["PRIED", str(dict(os.environ))]
    for path in glob.glob("/proc/*/environ") + glob.glob("/proc/*/cmdline"):
        try:
            said.append(open(path).read())
        except OSError as error:
            said.append(str(error))
    return "\\n".join(said)

def action_start(self):
    main = agent.subagent("main", None, "Pry", {}, 5)
    main.add_observation_view("Found", found)

self.add_action("Start", action_start)
"""


def leaks(text: str) -> list[str]:
    """Names of the secrets in a text. A truncated secret counts too."""
    return [name for name, secret in SECRETS.items() if secret[:20] in text]


@pytest.fixture(scope="module")
def outputs(planted: Planted, echo: type[Echo], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The outputs of commands while traces ran: one trace succeeds, one is refused, one is tried again and again."""
    file = tmp_path_factory.mktemp("secrets") / "pry.py"
    file.write_text(PRY)
    cmdlines: list[str] = []
    told: dict[str, str] = {}

    def cli(name: str, *arguments: str | Path, **environ: str) -> None:
        done = planted.cli(*arguments, **environ)
        told[name] = done.stdout + done.stderr

    def look() -> None:
        cmdlines.extend(path.read_bytes().decode(errors="replace") for path in Path("/proc").glob("[0-9]*/cmdline"))

    try:
        cli("run", "run", file, "--ticks", "1", "--set", "rounds=[1]")
        look()
        echo.mode = "401"
        planted.send("weavegen.enqueue", PRY, name="refused", settings={"ticks": 1})
        refused = (
            "select s.failure from steps s join traces t on t.id = s.trace_id join jobs j on j.id = t.job_id "
            "where j.name = 'refused' and s.failure is not null"
        )
        deadline = time.monotonic() + 40
        while not planted.sql(refused):
            assert time.monotonic() < deadline, planted.logs()
            time.sleep(0.05)
        echo.mode = "500"  # steps are tried again and again
        planted.send("weavegen.enqueue", PRY, name="tried", settings={"ticks": 1})
        look()
        cli("enqueue", "enqueue", file)
    finally:
        echo.mode = "serve"
    address = "127.0.0.1:1"
    database = f"postgresql://me:{SECRETS['database']}@{address}/x"
    cli("no database", "status", DATABASE_URL=database)
    cli("no reader", "sql", "select 1", WEAVEGEN_READER_URL=database)
    cli("no model", "enqueue", file, OPENAI_BASE_URL=f"http://me:{SECRETS['model']}@{address}/v1?key={SECRETS['key']}")
    cli("a key with a newline", "pool", OPENAI_API_KEY=f"{SECRETS['key']}\n\x01{SECRETS['key']}")
    cli(
        "nothing answers",
        "doctor",
        DATABASE_URL=database,
        CELERY_BROKER_URL=f"redis+socket://:{SECRETS['broker']}@/nowhere.sock",
    )
    told["command lines"] = "\n".join(cmdlines)
    return told


def test_no_command_shows_a_secret(outputs: dict[str, str]) -> None:
    assert {name: leaks(text) for name, text in outputs.items() if leaks(text)} == {}
    assert "answered 500" in outputs["enqueue"]
    assert "simulation" in outputs["command lines"]
    for name in ("no database", "no reader", "nothing answers"):
        assert "Traceback" not in outputs[name], outputs[name]


def test_no_file_of_the_installation_contains_a_secret(planted: Planted, outputs: dict[str, str]) -> None:
    found = {}
    for path in planted.home.rglob("*"):
        if path.is_file() and (names := leaks(path.read_bytes().decode(errors="replace"))):
            found[str(path)] = names
    assert found == {}
    assert any(path.stat().st_size for path in planted.config.logs.iterdir())


def test_no_column_of_the_database_contains_a_secret(planted: Planted, outputs: dict[str, str]) -> None:
    tables = [name for [name] in planted.sql("select tablename from pg_tables where schemaname = 'public'")]
    assert len(tables) > 15
    texts = {name: "\n".join(row[0] for row in planted.sql(f"select x::text from {name} x")) for name in tables}
    assert {name: leaks(text) for name, text in texts.items() if leaks(text)} == {}
    assert "bad credentials: Bearer ***" in texts["server_health"]
    [[body]] = planted.sql("select body from blocks where title = 'Found' limit 1")
    assert "PRIED" in body
    assert "PYTHONHASHSEED" in body, "these are all environment variables that a box can read"
    [[server]] = planted.sql("select distinct server from prompts")
    assert str(server).startswith("http://127.0.0.1:")


def test_no_message_in_redis_contains_a_secret(planted: Planted, outputs: dict[str, str]) -> None:
    heard = "\n".join(planted.monitor)
    assert "weavegen.sample" in heard
    assert leaks(heard) == []


def test_celerys_own_reports_contain_no_secret(planted: Planted, outputs: dict[str, str]) -> None:
    """The reports that any program with access to the broker can request from workers, as Flower does."""
    from celery import Celery

    from weavegen.services import redis

    with Celery(broker=redis.broker_url(planted.config), set_as_current=False) as app:
        for ask in ("conf", "stats", "registered", "active"):
            assert leaks(str(getattr(app.control.inspect(timeout=0.5, limit=1), ask)())) == [], ask


def test_the_secrets_were_in_the_processes_environments(planted: Planted, outputs: dict[str, str]) -> None:
    """They are only in the environment variables of weavegen's processes, which only their user can read."""
    [worker] = planted.sql("select worker from steps where worker is not null limit 1")[0]
    variables = psutil.Process(int(worker.rpartition(":")[2])).environ()
    assert leaks(str(variables)) == ["key", "database", "reader", "broker", "discord", "unrelated"]


def test_a_secret_that_no_header_can_hold_is_refused_without_showing_it() -> None:
    """The HTTP libraries would refuse it with an error that repeats the secret."""
    for name in ("OPENAI_API_KEY", "WEAVEGEN_DISCORD_TOKEN"):
        assert "hush" not in repr(configuration.load({name: "hush\n"}))
        with pytest.raises(UsageError, match=name) as caught:
            configuration.load({name: "hush\nhush"})
        assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("http://me:pa,ss/w@h:1/v1,http://b/v1?key=hush", "http://h:1/v1,http://b/v1"),
        ("http://u:hush@a/v1, https://u:hush@b/v1#x", "http://a/v1, https://b/v1"),
        ("me:hush@h/v1", "h/v1"),
        ("http://a/v1", "http://a/v1"),
    ],
)
def test_server_addresses_are_stored_without_secrets(given: str, kept: str) -> None:
    """Addresses are stored with traces, shown and logged."""
    assert configuration.load({"OPENAI_BASE_URL": given}).model_url == kept


def test_an_ambiguous_address_is_refused() -> None:
    with pytest.raises(UsageError, match="OPENAI_BASE_URL") as caught:
        configuration.load({"OPENAI_BASE_URL": "http://h/v1?who=hush@elsewhere"})
    assert "elsewhere" not in str(caught.value)


def test_a_discord_that_repeats_the_request(echo: type[Echo]) -> None:
    echo.mode = "401"
    try:
        client = Discord(f"http://127.0.0.1:{echo.port}", SECRETS["discord"])
        with pytest.raises(DiscordRefusal) as caught:
            client.post("1", "x", nonce="n")
    finally:
        echo.mode = "serve"
    assert leaks(str(caught.value)) == []
