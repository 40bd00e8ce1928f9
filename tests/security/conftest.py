"""An installation full of secrets, with servers that repeat what they receive."""

import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import ThreadingHTTPServer

import pytest
import redis as client

from tests.security.planted import SECRETS, Echo, Planted
from tests.support import ROOT
from tests.support.database import administration
from tests.support.installation import installed
from weavegen.config import Config
from weavegen.services import redis as broker
from weavegen.store import urls


@pytest.fixture(scope="session")
def echo() -> Iterator[type[Echo]]:
    """The class whose `mode` decides how the model server responds."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    Echo.port = server.server_address[1]
    yield Echo
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="session")
def redis_with_password(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a user's own broker."""
    folder = tmp_path_factory.mktemp("redis")
    (folder / "redis.conf").write_text(
        f'port 0\nunixsocket {folder}/redis.sock\nunixsocketperm 700\nsave ""\nrequirepass {SECRETS["broker"]}\n'
    )
    process = subprocess.Popen([broker.binary(), folder / "redis.conf"], stdout=subprocess.DEVNULL, cwd=folder)
    while not (folder / "redis.sock").exists():
        assert process.poll() is None
        time.sleep(0.02)
    yield f"redis+socket://:{SECRETS['broker']}@{folder}/redis.sock"
    process.terminate()
    process.wait()


@pytest.fixture(scope="session")
def planted(
    config: Config,
    postgres_url: str,
    redis_with_password: str,
    echo: type[Echo],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Planted]:
    """Workers with a database, a broker, a model server and a Discord that all have passwords."""
    ready = tmp_path_factory.mktemp("sim") / "ready"
    sim = subprocess.Popen(
        [sys.executable, "-m", "simulation", "--port", "0", "--ready-file", ready],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    with administration(config) as connection:
        connection.execute("create database planted")
    address = f"/planted?host={urls.sockets(config)}"  # the server asks for no password, but gets one
    while not ready.exists():
        assert sim.poll() is None
        time.sleep(0.02)
    echo.upstream = json.loads(ready.read_text())["port"]
    monitor: list[str] = []
    listener = client.Redis(
        unix_socket_path=redis_with_password.partition("@")[2], password=SECRETS["broker"], socket_timeout=None
    )
    over = threading.Event()

    def listen() -> None:
        with contextlib.suppress(client.RedisError, OSError, ValueError), listener.monitor() as commands:
            for command in commands.listen():
                monitor.append(str(command))
                if over.is_set():
                    return

    threading.Thread(target=listen, daemon=True).start()
    try:
        with installed(
            DATABASE_URL=f"postgresql://{urls.SUPERUSER}:{SECRETS['database']}@{address}",
            WEAVEGEN_READER_URL=f"postgresql://{urls.READER}:{SECRETS['reader']}@{address}",
            CELERY_BROKER_URL=redis_with_password,
            OPENAI_BASE_URL=f"http://me:{SECRETS['model']}@127.0.0.1:{echo.port}/v1",
            OPENAI_API_KEY=SECRETS["key"],
            WEAVEGEN_DISCORD_TOKEN=SECRETS["discord"],
            WEAVEGEN_DISCORD_URL="http://127.0.0.1:1",
            SOME_SECRET=SECRETS["unrelated"],
        ) as one:
            installation = Planted(one.home)
            installation.environ = one.environ
            installation.monitor = monitor
            yield installation
    finally:
        over.set()
        with contextlib.suppress(client.RedisError):
            listener.ping()
        sim.terminate()
        sim.wait()
        with administration(config) as connection:
            connection.execute("drop database planted with (force)")
