"""Environment variables, their defaults, and what child processes inherit."""

from pathlib import Path

import pytest

from weavegen import config
from weavegen.errors import UsageError
from weavegen.services import model_server, processes, redis
from weavegen.store import session, urls


def test_the_defaults_need_no_environment_variable() -> None:
    settings = config.load({})
    assert settings.home == Path.cwd() / ".weavegen"
    assert settings.database_url is None
    assert settings.broker_url is None
    assert settings.model_url is None
    assert settings.sandbox == "bubblewrap"


def test_every_variable_is_read() -> None:
    settings = config.load(
        {
            "WEAVEGEN_HOME": "/srv/traces",
            "DATABASE_URL": "postgresql://db/traces",
            "CELERY_BROKER_URL": "redis://broker/0",
            "OPENAI_BASE_URL": "http://a/v1,http://b/v1",
            "OPENAI_API_KEY": "key",
            "WEAVEGEN_HOST": "node7",
            "WEAVEGEN_MAX_ACTIVE": "9",
            "WEAVEGEN_LEASE": "2.5",
            "WEAVEGEN_SANDBOX": "none",
            "WEAVEGEN_DISCORD_TOKEN": "hush",
            "WEAVEGEN_DISCORD_URL": "http://discord/api",
            "WEAVEGEN_READER_URL": "postgresql://reader@db/traces",
            "WEAVEGEN_DRAIN": "3.5",
            "WEAVEGEN_USER": "ada",
            "WEAVEGEN_POOL_KEY": "lent",
        }
    )
    assert "hush" not in repr(settings)
    assert "lent" not in repr(settings)
    assert settings == config.Config(
        home=Path("/srv/traces"),
        database_url="postgresql://db/traces",
        broker_url="redis://broker/0",
        model_url="http://a/v1,http://b/v1",
        api_key="key",
        host="node7",
        max_active=9,
        lease=2.5,
        sandbox="none",
        discord_token="hush",
        discord_url="http://discord/api",
        reader_url="postgresql://reader@db/traces",
        drain=3.5,
        user="ada",
        pool_key="lent",
    )


@pytest.mark.parametrize("value", ["many", "0", "-1", "nan", "inf"])
def test_a_number_out_of_range_is_a_one_line_error(value: str) -> None:
    with pytest.raises(UsageError, match="WEAVEGEN_MAX_ACTIVE") as caught:
        config.load({"WEAVEGEN_MAX_ACTIVE": value})
    assert "\n" not in str(caught.value)


def test_at_least_one_trace_runs() -> None:
    assert config.load({"WEAVEGEN_MAX_ACTIVE": "0.5"}).max_active == 1


def test_an_empty_variable_counts_as_unset() -> None:
    assert config.load({"DATABASE_URL": "", "WEAVEGEN_LEASE": ""}) == config.load({})


def test_socket_paths_stay_short_in_a_deep_home() -> None:
    shallow = config.load({"WEAVEGEN_HOME": "/srv/w"})
    deep = config.load({"WEAVEGEN_HOME": "/srv/" + "deep/" * 60})
    other = config.load({"WEAVEGEN_HOME": "/srv/" + "deep/" * 61})
    assert shallow.runtime == Path("/srv/w/run")
    assert len(str(urls.sockets(deep) / ".s.PGSQL.5432")) <= 107
    assert deep.runtime != other.runtime


def test_every_shell_finds_the_same_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    deep = config.load({"WEAVEGEN_HOME": "/srv/" + "deep/" * 60})
    before = deep.runtime
    monkeypatch.setattr("tempfile.tempdir", "/scratch/job-17")
    assert deep.runtime == before


def test_a_child_process_reads_the_same_configuration(tmp_path: Path) -> None:
    given = config.load({"WEAVEGEN_HOME": str(tmp_path), "CELERY_BROKER_URL": "redis://b/0", "WEAVEGEN_LEASE": "3.5"})
    assert config.load(processes.environment(given)) == given


def test_a_child_process_does_not_inherit_unconfigured_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://elsewhere/x")
    assert processes.environment(config.load({}))["DATABASE_URL"] == ""


def test_commands_have_the_settings_that_up_stored(tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text('{"WEAVEGEN_LEASE": "7", "WEAVEGEN_USER": "ann", "OPENAI_API_KEY": "k"}')
    environ = {"WEAVEGEN_HOME": str(tmp_path)}
    assert (config.load(environ).lease, config.load(environ).api_key) == (7.0, "k")
    assert config.load(environ).user == config.login()
    assert config.load(environ | {"WEAVEGEN_LEASE": "8"}).lease == 8.0
    assert config.load(environ | {"WEAVEGEN_LEASE": ""}).lease == 15.0


def test_a_command_says_which_database_it_misses(tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text('{"DATABASE_URL": "postgresql://u:***@h/db #01234567"}')
    environ = {"WEAVEGEN_HOME": str(tmp_path)}
    with pytest.raises(UsageError, match=r"started with DATABASE_URL=postgresql://u:\*\*\*@h/db: set DATABASE_URL"):
        config.load(environ)
    assert config.load(environ | {"DATABASE_URL": ""}).database_url is None


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '"x"', "\x00"])
def test_an_invalid_file_of_settings_is_a_one_line_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "settings.json").write_text(text)
    with pytest.raises(UsageError, match=r"settings\.json is invalid: remove it"):
        config.load({"WEAVEGEN_HOME": str(tmp_path)})


def test_settings_are_shown_without_secrets() -> None:
    given = {"OPENAI_API_KEY": "very-secret", "DATABASE_URL": "postgresql://u:pass@h/db"}
    shown = config.shown_settings(config.load(given))
    assert "very-secret" not in str(shown)
    assert "pass@" not in str(shown)
    assert shown["DATABASE_URL"].startswith("postgresql://u:***@h/db #")
    other = config.shown_settings(config.load(given | {"OPENAI_API_KEY": "another"}))
    assert shown["OPENAI_API_KEY"] != other["OPENAI_API_KEY"]


@pytest.mark.parametrize(
    ("url", "bare"),
    [
        ("postgresql://db/x?user=u&password=hush", "postgresql://db/x?user=u&password=***"),
        (
            "postgresql://db:5432/x?PASSWORD=h@hush&sslmode=require",
            "postgresql://db:5432/x?PASSWORD=***&sslmode=require",
        ),
        ("postgresql://db/x?sslkey=/k.pem&sslpassword=hush", "postgresql://db/x?sslkey=/k.pem&sslpassword=***"),
        ("postgresql://u:hush@db/x?password=hush", "postgresql://u:***@db/x?password=***"),
    ],
)
def test_a_password_in_the_query_of_an_address_is_not_shown(url: str, bare: str) -> None:
    shown = config.shown_settings(config.load({"DATABASE_URL": url}))["DATABASE_URL"]
    assert "hush" not in shown
    assert shown.startswith(f"{bare} #")
    other = config.shown_settings(config.load({"DATABASE_URL": url.replace("hush", "loud")}))["DATABASE_URL"]
    assert shown != other


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg", "postgresql+psycopg2"])
def test_every_spelling_of_a_database_url_uses_psycopg(scheme: str) -> None:
    given = config.load({"DATABASE_URL": f"{scheme}://me:p%40ss@db:5433/traces?sslmode=require"})
    assert urls.database_url(given) == "postgresql://me:p%40ss@db:5433/traces?sslmode=require"


@pytest.mark.parametrize("url", ["mysql://me:hush@db/x", "hush", "postgresql://me:hush@db:port/x"])
def test_other_databases_are_refused_without_showing_the_password(url: str) -> None:
    with pytest.raises(UsageError, match="DATABASE_URL") as caught:
        urls.database_url(config.load({"DATABASE_URL": url}))
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("seconds", [float("inf"), float("nan"), 2_147_484])
def test_a_time_limit_that_postgresql_can_not_have_is_refused(seconds: float) -> None:
    given = config.load({"WEAVEGEN_HOME": "/srv/w"})
    with pytest.raises(UsageError, match="at most 2,000,000"):
        session.read_only(given, urls.database_url(given), seconds)


def test_embedded_addresses_derive_from_the_home() -> None:
    given = config.load({"WEAVEGEN_HOME": "/srv/my traces"})
    assert urls.database_url(given) == "postgresql://weavegen@/weavegen?host=/srv/my%20traces/run/postgres"
    assert redis.broker_url(given) == "redis+socket:///srv/my%20traces/run/redis.sock"


def test_a_comma_in_the_home_is_refused() -> None:
    with pytest.raises(UsageError, match="comma"):
        urls.database_url(config.load({"WEAVEGEN_HOME": "/srv/a,b"}))


def test_a_given_model_server_has_precedence_over_the_simulation(tmp_path: Path) -> None:
    given = config.load({"WEAVEGEN_HOME": str(tmp_path), "OPENAI_BASE_URL": "http://gpu:8000/v1"})
    assert model_server.urls(given) == ["http://gpu:8000/v1"]
    with pytest.raises(UsageError, match="OPENAI_BASE_URL"):
        model_server.urls(config.load({"WEAVEGEN_HOME": str(tmp_path)}))
