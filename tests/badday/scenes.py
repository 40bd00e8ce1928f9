"""The scenes: what breaks, and what a user must see."""

import json
import os
import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import psutil  # type: ignore[import-untyped]
import psycopg
from celery import Celery

from tests.badday.world import Scene, World
from tests.support.raw_server import Raw, answer, slowly
from tests.support.waiting import until
from weavegen.services import fleet, processes
from weavegen.services.redis import broker_url
from weavegen.store import urls

Breaks = Callable[[World], None]


def killed(*names: str) -> Breaks:
    return lambda world: world.kill(*names)


def replies(status: str, body: dict[str, Any], *headers: str) -> Breaks:
    """Every completion is answered with this."""

    def breaks(world: World) -> None:
        world.front.reply = lambda request: answer(body, status, *headers)

    return breaks


def raw(make: Callable[[], Raw]) -> Breaks:
    def breaks(world: World) -> None:
        world.front.reply = lambda request: make()

    return breaks


def spoilt(spoil: Callable[[dict[str, Any]], None]) -> Breaks:
    """Every completion is changed before it is sent."""

    def breaks(world: World) -> None:
        world.front.spoil = spoil

    return breaks


def healed(world: World) -> None:
    world.front.reply, world.front.spoil = lambda request: None, lambda completion: None


def hang() -> Raw:
    time.sleep(40)
    return b""


def without_logprobs(completion: dict[str, Any]) -> None:
    for choice in completion["choices"]:
        choice["logprobs"] = None


def one_choice_less(completion: dict[str, Any]) -> None:
    del completion["choices"][-1]


def up(world: World, **environ: str) -> None:
    done = world.installation.cli("up", **environ)
    assert done.returncode == 0, done.stderr


def unsupervised(name: str) -> Breaks:
    """A service dies, and the supervisor hangs, as on a host that nobody looks after."""

    def breaks(world: World) -> None:
        world.stop(processes.SUPERVISOR)
        world.kill(name)

    return breaks


def proceed(world: World) -> None:
    world.proceed()


def all_killed(world: World) -> None:
    names = list(processes.registered(world.installation.config))
    world.stop(processes.SUPERVISOR)
    world.kill(*names)


def boxes_killed(world: World) -> None:
    for (pid,) in world.sql("select pid from environments where closed_at is null"):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def workspaces_removed(world: World) -> None:
    shutil.rmtree(world.installation.config.workspaces, ignore_errors=True)


def logs_removed(world: World) -> None:
    """What happens later must be in the new log files."""
    logs = world.installation.config.logs
    shutil.rmtree(logs)
    until(logs.exists, "a new folder for logs")
    world.forget_log()
    junk_messages(world)


def broken_register(world: World) -> None:
    path = processes.register_path(world.installation.config)
    shutil.copy(path, path.with_suffix(".saved"))
    path.write_text("{")


def register_back(world: World) -> None:
    path = processes.register_path(world.installation.config)
    shutil.copy(path.with_suffix(".saved"), path)


def broken_settings(world: World) -> None:
    path = world.installation.config.stored
    shutil.copy(path, path.with_suffix(".saved"))
    path.write_text("{")


def settings_back(world: World) -> None:
    path = world.installation.home / "settings.json"
    shutil.copy(path.with_suffix(".saved"), path)


def queues_flushed(world: World) -> None:
    with world.broker() as broker:
        for name in ("control", "sample", "score", "lint", "execute", f"execute.{world.installation.config.host}"):
            broker.delete(name)


def junk_messages(world: World) -> None:
    junk = (b"x", b"{}", b"[]", json.dumps({"body": "!", "content-type": "application/data"}).encode(), b"\x00\xff")
    with world.broker() as broker:
        for name in ("control", "sample", "score", "lint", f"execute.{world.installation.config.host}"):
            for message in junk:
                broker.lpush(name, message)


def told_to_shut_down(world: World) -> None:
    with Celery(broker=broker_url(world.installation.config), set_as_current=False) as app:
        app.control.shutdown()
        for node in fleet.WORKERS:
            for queue in ("sample", "score", "lint", "control"):
                app.control.cancel_consumer(queue, destination=[f"{node}@{world.installation.config.host}"])


def connect(world: World) -> "psycopg.Connection[tuple[Any, ...]]":
    url = urls.database_url(world.installation.config).replace("+psycopg", "")
    return psycopg.connect(url, autocommit=True)


def table_locked(world: World) -> None:
    """A forgotten psql session locks the journal for twelve seconds."""
    connection = connect(world)
    connection.autocommit = False
    connection.execute("lock table steps in access exclusive mode")
    threading.Timer(12, connection.close).start()


def connections_used_up(world: World) -> None:
    """A notebook opens all connections that the database allows, for ten seconds."""
    opened = []
    try:
        while len(opened) < 1_000:
            opened.append(connect(world))
    except psycopg.OperationalError:
        pass
    threading.Timer(10, lambda: [connection.close() for connection in opened]).start()


def database_restarted(world: World) -> None:
    os.kill(world.pid("postgres"), signal.SIGINT)


def backend_killed(world: World) -> None:
    children = psutil.Process(world.pid("postgres")).children()
    next(child for child in children if "weavegen" in " ".join(child.cmdline())).kill()


def port_taken(world: World) -> None:
    """The viewer dies, and another program takes its port."""
    url = processes.registered(world.installation.config)["viewer"].url
    port = urlsplit(str(url)).port
    world.stop(processes.SUPERVISOR)
    world.kill("viewer")
    time.sleep(0.5)
    world.taken = socket.create_server(("127.0.0.1", port or 0))
    world.proceed()


def port_free(world: World) -> None:
    world.taken.close()
    up(world)


def other_address(world: World) -> None:
    """A shell has another address of the model server than the workers."""
    world.installation.environ["OPENAI_BASE_URL"] = "http://127.0.0.1:9/v1"


def address_back(world: World) -> None:
    world.installation.environ["OPENAI_BASE_URL"] = world.front.url


def changed_settings(world: World) -> None:
    """`up` with another setting, while everything runs."""
    world.installation.environ["WEAVEGEN_LEASE"] = "3"
    up(world)


def home_removed(world: World) -> None:
    """The home is removed as a whole. Its traces are gone with it."""
    home = world.installation.home
    for _ in range(20):
        shutil.rmtree(home, ignore_errors=True)
    deadline = time.monotonic() + 15
    while time.monotonic() < deadline and (home.exists() or processes.orphans(world.installation.config)):
        shutil.rmtree(home, ignore_errors=True)
        time.sleep(0.2)
    home.mkdir(exist_ok=True)


def new_home(world: World) -> None:
    up(world)
    world.enqueue()


def server(name: str, breaks: Breaks, pattern: str) -> Scene:
    """A scene in which the only model server fails: its error is in every place where users look."""
    places = ("pool", "doctor", "status", "top", "viewer")
    return Scene(name, breaks, dict.fromkeys(places, pattern), healed)


SCENES = (
    Scene("the model worker is killed", killed("model"), {"log": "model has ended: restart"}),
    Scene("the lint worker is killed", killed("lint"), {"log": "lint has ended: restart"}),
    Scene("the execute worker is killed", killed("execute"), {"log": "execute has ended: restart"}),
    Scene("beat is killed", killed("beat"), {"log": "beat has ended: restart"}),
    Scene("all workers are killed at once", killed(*fleet.WORKERS, "beat"), {"log": "lint has ended: restart"}),
    Scene("Redis is killed", killed("redis"), {"log": "redis has ended: restart"}),
    Scene("PostgreSQL is killed", killed("postgres"), {"log": "postgres has ended: restart"}),
    Scene("one backend of PostgreSQL is killed", backend_killed, {}),
    Scene("an administrator restarts PostgreSQL", database_restarted, {"log": "postgres has ended: restart"}),
    Scene(
        "the supervisor is killed", killed(processes.SUPERVISOR), {"log": "supervisor has ended: it is started again"}
    ),
    Scene("the viewer is killed", killed("viewer"), {"log": "viewer has ended: restart"}),
    Scene("the viewer's port is taken when it restarts", port_taken, {"doctor": "viewer has ended"}, port_free),
    Scene(
        "the model worker is killed and nothing restarts it",
        unsupervised("model"),
        dict.fromkeys(("doctor", "status", "top", "viewer"), "model has ended|no worker serves the queue s"),
        proceed,
    ),
    Scene(
        "the model worker hangs",
        lambda world: world.stop("model"),
        dict.fromkeys(("status", "top", "viewer", "doctor"), "silent|no worker serves"),
        proceed,
    ),
    Scene("everything is killed, as by a reboot", all_killed, {"doctor": "nothing runs any more|has ended"}, up),
    server(
        "completions answer 500, CUDA out of memory",
        replies("500 Oops", {"error": {"message": "CUDA out of memory"}}),
        "CUDA out of memory",
    ),
    server(
        "completions answer 429 with Retry-After",
        replies("429 Slow", {"error": {"message": "too many requests"}}, "Retry-After: 2"),
        "too many requests",
    ),
    server(
        "completions answer 401", replies("401 No", {"error": {"message": "bad key"}}), "401|bad key|OPENAI_API_KEY"
    ),
    server("completions answer 404", replies("404 No", {"error": {"message": "no such model"}}), "404|no such model"),
    server("completions are no JSON", raw(lambda: answer(b"<html>hello</html>")), "invalid|malformed|JSON"),
    server("completions are nested 100,000 deep", raw(lambda: answer(b"[" * 100_000)), "invalid|malformed|JSON"),
    server("completions redirect elsewhere", replies("302 Found", {}, "Location: http://127.0.0.1:9/"), "302|redirect"),
    server("completions come without logprobs", spoilt(without_logprobs), "logprobs"),
    server("completions have one choice less", spoilt(one_choice_less), "choices"),
    Scene("completions take 40 seconds", raw(hang), {"top": "running|oldest"}, healed),
    Scene(
        "completions come a byte a second",
        raw(lambda: slowly(answer(b'{"choices": []}' * 40), 1.0)),
        {"top": "running|oldest"},
        healed,
    ),
    Scene("boxes are killed", boxes_killed, {}),
    Scene("the workspaces are removed", workspaces_removed, {}),
    Scene("the logs are removed", logs_removed, {"log": "dropped"}),
    Scene(
        "the register is no JSON",
        broken_register,
        {"status": "services.json is invalid", "up": "services.json is invalid"},
        register_back,
    ),
    Scene(
        "the stored settings are no JSON",
        broken_settings,
        {"status": "settings.json is invalid", "up": "settings.json is invalid"},
        settings_back,
    ),
    Scene("messages in all queues are lost", queues_flushed, {}),
    Scene("messages are malformed", junk_messages, {"log": "dropped|malformed|refuse"}),
    Scene("somebody sends shutdown by remote control", told_to_shut_down, {"log": "refuse"}),
    Scene("a forgotten lock on the journal", table_locked, {}),
    Scene(
        "all connections of the database are in use", connections_used_up, {"status": "connection|clients|\\bjob\\b"}
    ),
    Scene(
        "a shell has another OPENAI_BASE_URL",
        other_address,
        {"doctor": "OPENAI_BASE_URL is .* here, and"},
        address_back,
    ),
    Scene("up is run with another WEAVEGEN_LEASE", changed_settings, {"doctor": "ok +settings"}),
    Scene("the home is removed", home_removed, {"status": "no traces in"}, new_home),
)
