"""The broker under attack: malformed messages, keys and commands against real workers; Redis's password."""

import base64
import copy
import json
import os
import signal
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest
from celery import Celery
from redis import AuthenticationError, Redis
from redis.exceptions import NoPermissionError, ResponseError

from tests.support import TICTACTOE
from tests.support.installation import Installation, installed
from tests.support.ports import free_port
from tests.support.waiting import until
from weavegen.services import fleet, processes, redis

DROP = object()
"""In `message`: the field is left out."""


def message(**changes: Any) -> dict[str, Any]:
    """A message for a step that does not exist, as Celery sends it, with changes. `a__b` is the field b of a."""
    raw: dict[str, Any] = {
        "body": base64.b64encode(json.dumps([[1], {}, {}]).encode()).decode(),
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": {"lang": "py", "task": "weavegen.lint", "id": str(uuid.uuid4()), "retries": 0},
        "properties": {
            "delivery_tag": str(uuid.uuid4()),
            "body_encoding": "base64",
            "delivery_mode": 2,
            "delivery_info": {"exchange": "", "routing_key": "lint"},
            "priority": 0,
        },
    }
    for path, value in changes.items():
        place, (*folders, name) = raw, [part.replace("_type", "-type") for part in path.split("__")]
        for folder in folders:
            place = place[folder]
        name = {"content_encoding": "content-encoding"}.get(name, name)
        place.pop(name, None)
        if value is not DROP:
            place[name] = copy.deepcopy(value)
    return raw


def body(value: Any, **changes: Any) -> dict[str, Any]:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return message(body=base64.b64encode(data).decode(), **changes)


DEEP = b"[" * 100_000
DEEPISH = json.loads("[" * 400 + "]" * 400)
HUGE = "x" * 12_000_000
SIGNATURE = {"task": "weavegen.close", "args": [1], "kwargs": {}, "options": {"queue": "control"}}
BAD: dict[str, bytes | dict[str, Any]] = {
    # not JSON, or another JSON
    "a letter": b"x",
    "NUL": b"\0",
    "no UTF-8": b"\xff\xfe{}",
    "half of a message": json.dumps(message()).encode()[:-40],
    "a number": b"7",
    "null": b"null",
    "a list": b"[]",
    "an empty object": b"{}",
    "a string": b'"x"',
    "not a number": b"NaN",
    "nested too deep": DEEP,
    "nested deep": json.dumps(DEEPISH).encode(),
    "a number of 5,000 digits": b"9" * 5000,
    "half a character": json.dumps(message(headers__task="\ud800")).encode(),
    "a marker of kombu's JSON": json.dumps(message(headers__origin={"__type__": "uuid", "__value__": 5})[
        "headers"]).encode(),
    "huge": json.dumps(message(body=HUGE)).encode(),
    # fields that are missing
    **{f"no {name}": message(**{name: DROP}) for name in ("body", "headers", "properties", "content_type")},
    "no encoding": message(content_encoding=DROP),
    **{
        f"no {name}": message(**{f"properties__{name}": DROP})
        for name in ("delivery_tag", "body_encoding", "delivery_info")
    },
    **{f"no {name}": message(**{f"headers__{name}": DROP}) for name in ("task", "id")},
    # fields of other types
    **{f"body is {value!r}": message(body=value) for value in (7, None, [], {}, True)},
    **{f"headers are {value!r}": message(headers=value) for value in (7, None, [], "x")},
    **{f"properties are {value!r}": message(properties=value) for value in (7, None, [], "x")},
    **{f"the tag is {value!r}": message(properties__delivery_tag=value) for value in (7, None, [], {}, "", "a b\n")},
    **{f"delivery is {value!r}": message(properties__delivery_info=value) for value in (7, None, [], "x")},
    **{f"the exchange is {value!r}": message(properties__delivery_info__exchange=value) for value in (7, [], {})},
    **{f"the priority is {value!r}": message(properties__priority=value) for value in ("x", [], 1e300, {})},
    **{f"the task is {value!r}": message(headers__task=value) for value in (7, None, [], {}, True, "")},
    **{f"the id is {value!r}": message(headers__id=value) for value in (7, None, [], {}, "", "\x1b[2J", "x" * 300)},
    # contents and encodings
    "bytes": message(content_type="application/data", content_encoding="binary"),
    "text": message(content_type="text/plain"),
    "YAML": message(content_type="application/x-yaml"),
    "a pickle": message(content_type="application/x-python-serialize", content_encoding="binary"),
    "an unknown type": message(content_type="image/png"),
    "a type that is a list": message(content_type=["application/json"]),
    "an unknown encoding": message(content_encoding="klingon"),
    "an encoding that is a number": message(content_encoding=7),
    "no base64": message(body="*"),
    "cut base64": message(body="aGk"),
    "an unknown body encoding": message(properties__body_encoding="rot13"),
    "compressed": message(headers__compression="application/x-gzip", body="H4sIAAAA"),
    "a compression that is a list": message(headers__compression=[], body="H4sIAAAA"),
    # bodies
    "the body is no JSON": body(b"x"),
    "the body is empty": message(body=""),
    "the body is no UTF-8": body(b"\xff"),
    "the body is deep": body(DEEP),
    "the arguments are deep": body([[DEEPISH], {}, {}]),
    "protocol 1": body({"task": "weavegen.lint", "id": "1", "args": [1], "kwargs": {}}, headers={}),
    "two parts": body([[1], {}]),
    "four parts": body([[1], {}, {}, {}]),
    "arguments that are none": body([7, {}, {}]),
    "keywords that are none": body([[1], [], {}]),
    "no embed": body([[1], {}, 7]),
    # tasks and their options
    "an unknown task": message(headers__task="os.system"),
    "a task of Celery's": message(headers__task="celery.chord_unlock"),
    "a task in the far future": message(headers__eta="2999-01-01T00:00:00+00:00"),
    "an ETA that is none": message(headers__eta="soon"),
    "an end that is none": message(headers__expires="soon"),
    "an end in year 1": message(headers__expires="0001-01-01T00:00:00+23:59"),
    "an end in year 9999": message(headers__expires="9999-12-31T23:59:59-23:59"),
    "an end that is a list": message(headers__expires=[]),
    "an end of 1e300": message(headers__expires=1e300),
}  # fmt: skip
HARMLESS: dict[str, dict[str, Any]] = {
    "callbacks": body([[1], {}, {"callbacks": [SIGNATURE]}]),
    "errbacks": body([[1], {}, {"errbacks": [SIGNATURE]}]),
    "a chain": body([[1], {}, {"chain": [SIGNATURE]}]),
    "a chord": body([[1], {}, {"chord": SIGNATURE}]),
    "callbacks that are a number": body([[1], {}, {"callbacks": 7}]),
    "retries": message(headers__retries={"x": []}),
    "time limits": message(headers__timelimit=[1e-9, 1e-9]),
    "stamps": message(headers__stamped_headers=["x"], headers__stamps=7),
    "a group": message(headers__group=[1], headers__group_index="x"),
    "where results go": message(properties__reply_to=["x"], properties__correlation_id={}),
    "expired": message(headers__expires="2020-01-01T00:00:00+00:00"),
    "a marker of kombu's JSON in the arguments": body([[{"__type__": "datetime", "__value__": "x"}], {}, {}]),
    "keywords": body([[], {"step_id": 1}, {}]),
    "too many arguments": body([[1, 2, 3], {}, {}]),
    "unknown keywords": body([[], {"x\0": []}, {}]),
}
"""Messages whose harmful part weavegen does not read, and calls that the task itself refuses."""
BAD_COMMANDS: list[bytes] = [
    *(item if isinstance(item, bytes) else json.dumps(item).encode() for item in BAD.values()),
    *(
        json.dumps(body(value, headers={"clock": clock})).encode()
        for clock in (1, "x", 2**63 - 1, [])
        for value in (
            7, [], {}, "x", {"method": 7}, {"method": "ping", "destination": 7},
            {"method": "ping", "destination": [[]]},
            {"method": "ping", "pattern": "(a+)+$", "matcher": "pcre"}, {"method": "ping", "reply_to": 7},
            {"method": "ping", "reply_to": {"exchange": "", "routing_key": "control"}, "ticket": "x"},
            {"method": "ping", "reply_to": {"exchange": "reply.celery.pidbox", "routing_key": [1]}},
            {"method": "active", "arguments": 7}, {"method": "__class__"}, {"method": "x" * 1000},
        )
    ),
]  # fmt: skip
CHANGING = (
    ("shutdown", {}), ("cancel_consumer", {"queue": "control"}), ("add_consumer", {"queue": "x"}),
    ("rate_limit", {"task_name": "weavegen.lint", "rate_limit": "1/h"}),
    ("time_limit", {"task_name": "weavegen.lint", "soft": 1}),
    ("revoke", {"task_id": "x"}), ("revoke", {"task_id": "x", "terminate": True, "signal": "KILL"}),
    ("revoke_by_stamped_headers", {"headers": {"x": "y"}}), ("terminate", {"task_id": "x", "signal": "KILL"}),
    ("pool_grow", {"n": 9}), ("pool_shrink", {"n": 9}), ("pool_restart", {}), ("autoscale", {"max": 1, "min": 1}),
    ("disable_events", {}), ("election", {"id": "x", "topic": "y"}), ("clock", {}), ("report", {}),
    ("hello", {"from_node": "x", "revoked": {"x": 1}}), ("query_task", {"ids": ["x"]}), ("memsample", {}),
    ("memdump", {}), ("objgraph", {}),
    ("dump_conf", {}), ("dump_tasks", {}), ("os.system", {}),
)  # fmt: skip


@pytest.fixture(scope="module")
def here() -> Iterator[Installation]:
    with installed(WEAVEGEN_FLOWER=str(free_port())) as installation:
        yield installation


@pytest.fixture
def broker(here: Installation) -> Iterator[Redis]:
    path = str(redis.socket(here.config))
    with Redis(unix_socket_path=path, password=redis.password(here.config), socket_timeout=10) as client:
        yield client


def queues(here: Installation) -> list[str]:
    return ["control", "sample", "lint", f"execute.{here.config.host}"]


def pids(here: Installation) -> dict[str, int]:
    """The running workers and Flower, with their pids."""
    services = processes.registered(here.config)
    return {name: services[name].pid for name in (*fleet.WORKERS, fleet.FLOWER) if processes.alive(services[name])}


def send(broker: Redis, queue: str, item: bytes | dict[str, Any]) -> None:
    if isinstance(item, dict):
        item = copy.deepcopy(item)
        properties = item.get("properties")
        if isinstance(properties, dict) and len(str(properties.get("delivery_tag"))) == 36:
            properties["delivery_tag"] = str(uuid.uuid4())
        item = json.dumps(item).encode()
    broker.lpush(queue, item)


def settled(here: Installation, broker: Redis) -> None:
    """Wait until the attacker's messages are read, and none is left without acknowledgement."""
    until(lambda: not any(broker.llen(queue) for queue in queues(here)), seconds=60)
    until(lambda: broker.hlen("unacked") == 0, seconds=60)


def works(here: Installation) -> None:
    """Every worker answers and does its steps, and `up` finds everything running."""
    assert fleet.answering(here.config) == {fleet.node(here.config, name) for name in fleet.WORKERS}, here.logs()
    done = here.cli("run", TICTACTOE, "--ticks", "1", "--set", "rounds=[1]", timeout=120)
    assert done.returncode == 0, done.stderr + here.logs()
    queues_used = {queue for (queue,) in here.sql("select distinct queue from steps where status = 'done'")}
    assert {"sample", "lint", f"execute.{here.config.host}"} <= queues_used
    assert [part["name"] for part in here.json("up") if part["started"]] == []


def logged(here: Installation, text: str) -> list[str]:
    lines = [line for name in fleet.WORKERS for line in (here.config.logs / f"{name}.log").read_text().split("\n")]
    return [line for line in lines if text in line]


# ------------------------------------------------------------------------------------------- messages


def test_there_are_enough_kinds() -> None:
    assert len(BAD) >= 60
    assert len(BAD_COMMANDS) >= 60


def test_malformed_messages_end_no_worker_and_block_no_queue(here: Installation, broker: Redis) -> None:
    before = pids(here)
    assert len(before) == 4
    for queue in queues(here):
        for step in ("", "\x06\x163", "\x06\x169"):  # kombu's queues by priority
            for name, item in (BAD | HARMLESS).items():
                if not step or name not in ("huge", "nested too deep"):
                    send(broker, queue + step, item)
    settled(here, broker)
    assert pids(here) == before, here.logs()
    for name in fleet.WORKERS:
        text = (here.config.logs / f"{name}.log").read_text()
        assert "a message is dropped" in text, name
        assert "Traceback" not in text, text[-5000:]
        assert text.count("\n") < 100, "lines are limited"
        assert "\x1b" not in text
    works(here)


@pytest.mark.parametrize("queue", ["control", "sample", "lint", "execute"])
def test_each_message_alone_is_dropped(here: Installation, broker: Redis, queue: str) -> None:
    """One of each kind of content in turn, with a legal message between them that must be taken."""
    queue = f"execute.{here.config.host}" if queue == "execute" else queue
    before = pids(here)
    for item in list(BAD.values())[::3]:
        send(broker, queue, item)
        send(broker, queue, message())
        until(lambda: broker.llen(queue) == 0 and broker.hlen("unacked") == 0, seconds=30)
    assert pids(here) == before


def test_malformed_commands_and_events(here: Installation, broker: Redis) -> None:
    before = pids(here)
    events = [
        json.dumps(body(event, headers={"hostname": "x"})).encode()
        for event in (
            7, [], [7], {}, {"type": 7}, {"type": "task-received"},
            {"type": "task-received", "uuid": [], "hostname": {}},
            {"type": "worker-heartbeat", "hostname": "x", "clock": "x"}, {"type": "task-sent", "clock": 2**62},
            {"type": "task-failed", "uuid": "x", "hostname": "y", "timestamp": "z", "utcoffset": "a", "clock": 1},
        )
    ]  # fmt: skip
    for item in BAD_COMMANDS:
        broker.publish("/0.celery.pidbox", item)
        broker.publish("/0.celeryev/x.y", item)
        broker.publish("/0.celeryev/worker.heartbeat", item)
    for item in events:
        broker.publish("/0.celeryev/task.multi", item)
    works(here)
    assert pids(here) == before, here.logs()
    assert logged(here, "remote control: a command is dropped")


def test_what_waits_for_acknowledgement_may_be_malformed(here: Installation, broker: Redis) -> None:
    """In the hash `unacked`, from which workers that start put messages back."""
    before = pids(here)
    entries: list[bytes] = [item if isinstance(item, bytes) else json.dumps(item).encode() for item in BAD.values()]
    entries += [json.dumps(entry).encode() for item in BAD.values() if isinstance(item, dict)
                for entry in ([item, "", "lint"], [item, [], {}], [item])]  # fmt: skip
    for number, entry in enumerate(entries):
        broker.hset("unacked", f"bad-{number}", entry)
        broker.zadd("unacked_index", {f"bad-{number}": 1.0})
    broker.zadd("unacked_index", {b"\xff": 1.0})
    broker.hset("unacked", "good", json.dumps([message(properties__delivery_tag="good"), "", "lint"]))
    broker.zadd("unacked_index", {"good": 1.0})
    for name in ("lint", "execute"):
        os.kill(before[name], signal.SIGKILL)
        until(lambda name=name: pids(here).get(name) != before[name], seconds=20)  # the supervisor starts another
    done = here.cli("up")
    assert done.returncode == 0, done.stderr + here.logs()
    until(lambda: broker.hlen("unacked") == 0 and broker.zcard("unacked_index") == 0, seconds=30)
    works(here)


def test_keys_of_another_type_are_deleted(here: Installation, broker: Redis) -> None:
    before = pids(here)
    names = ["unacked", "unacked_index", *queues(here), "lint\x06\x163"]
    names += [f"_kombu.binding.{name}" for name in ("control", "celery.pidbox", "reply.celery.pidbox", "lint")]
    for name in names:
        broker.delete(name)
        broker.set(name, "x")
    time.sleep(2)
    works(here)
    assert pids(here) == before, here.logs()
    assert logged(here, "the key is deleted"), here.logs()
    for name in names:
        broker.delete(name)
        broker.set(name, "x")
    broker.delete("_kombu.binding.reply.celery.pidbox")
    broker.sadd("_kombu.binding.reply.celery.pidbox", "x", b"\xff\x06\x16")
    for name in fleet.WORKERS:
        os.kill(before[name], signal.SIGKILL)
        until(lambda name=name: pids(here).get(name) != before[name], seconds=20)  # it may have been restarted already
    done = here.cli("up")
    assert done.returncode == 0, done.stderr + here.logs()
    works(here)


# ------------------------------------------------------------------------------------- remote control


def test_commands_that_change_something_are_refused(here: Installation, broker: Redis) -> None:
    before = pids(here)
    children = len(psutil.Process(before["lint"]).children())
    with Celery(broker=redis.broker_url(here.config), set_as_current=False) as app:
        for method, arguments in CHANGING:
            told = app.control.broadcast(method, arguments, reply=True, timeout=5, limit=3)
            assert [list(reply.values()) for reply in told] == [
                [{"error": f"weavegen's workers do not obey {method}"}]
            ] * 3, told
        inspect = app.control.inspect(timeout=2, limit=3)
        served = {queue["name"] for of_worker in inspect.active_queues().values() for queue in of_worker}
        assert served >= set(queues(here))
        assert "x" not in served
        assert not any("x" in revoked for revoked in inspect.revoked().values())
        assert not any("rate_limit" in task for of_worker in inspect.registered().values() for task in of_worker)
    assert pids(here) == before
    assert len(psutil.Process(before["lint"]).children()) == children
    assert logged(here, "shutdown is refused")
    works(here)


def test_commands_that_read_are_answered(here: Installation) -> None:
    secret = redis.password(here.config)
    assert secret
    with Celery(broker=redis.broker_url(here.config), set_as_current=False) as app:
        inspect = app.control.inspect(timeout=2, limit=3)
        for method in (
            "ping",
            "stats",
            "active_queues",
            "registered",
            "scheduled",
            "active",
            "reserved",
            "revoked",
            "conf",
        ):
            told = getattr(inspect, method)()
            assert len(told) == 3, method
            assert secret not in str(told), method
        assert app.control.enable_events(reply=True, timeout=2, limit=3)
    assert not logged(here, "enable_events is refused")


# ------------------------------------------------------------------------------------------- password


def test_the_embedded_redis_asks_for_its_password(here: Installation, broker: Redis) -> None:
    assert broker.ping()
    path = str(redis.socket(here.config))
    for password in (None, "", "x", "weavegen"):
        with Redis(unix_socket_path=path, password=password) as client, pytest.raises(AuthenticationError):
            client.ping()


def command_and_environment(process: psutil.Process) -> str | None:
    """None if the process has ended: the workers' children come and go."""
    try:
        return f"{process.cmdline()} {process.environ()}"
    except psutil.NoSuchProcess:
        return None


def test_the_password_is_in_one_private_file_alone(here: Installation) -> None:
    secret = redis.password(here.config)
    assert secret
    assert len(secret) >= 40
    files = [path for path in here.home.rglob("*") if path.is_file() and path.suffix != ".sock"]
    holders = [path for path in files if secret.encode() in path.read_bytes()]
    assert holders == [redis.password_path(here.config)]
    for path in (redis.password_path(here.config), redis.password_path(here.config).with_name("users.acl")):
        assert path.stat().st_mode & 0o777 == 0o600
    parents = [psutil.Process(service.pid) for service in fleet.running(here.config)]
    family = [*parents, *(child for parent in parents for child in parent.children(recursive=True))]
    shown = [text for process in family if (text := command_and_environment(process)) is not None]
    assert len(shown) > 8
    assert not any(secret in text for text in shown)
    for command in (["up"], ["doctor"], ["status"], ["up", "--json"]):
        done = here.cli(*command)
        assert secret not in done.stdout + done.stderr


FORBIDDEN = (
    "config get *", "config set dir /tmp", "module list", "save", "bgsave", "shutdown nosave",
    "monitor", "replicaof no one", "slaveof 127.0.0.1 1", "flushall", "flushdb", "keys *", "acl list", "sync",
    "acl setuser x on nopass +@all", "client list", "cluster info", "migrate 127.0.0.1 1 x 0 1", "swapdb 0 0",
    "latency doctor", "bgrewriteaof",
)  # fmt: skip


def test_who_has_the_password_can_not_administer_redis(broker: Redis) -> None:
    for command in FORBIDDEN:
        with pytest.raises(NoPermissionError):
            broker.execute_command(*command.split())
    with pytest.raises(ResponseError, match="not allowed"):  # Valkey refuses it before it looks at permissions
        broker.execute_command("debug", "sleep", "0")


def test_a_lost_password_is_a_one_line_error(here: Installation, tmp_path: Path) -> None:
    path = redis.password_path(here.config)
    secret = path.read_text()
    try:
        path.write_text("x")
        done = here.cli("up")
        assert done.returncode == 2
        assert "weavegen down" in done.stderr
        assert "\n" not in done.stderr.strip()
    finally:
        path.write_text(secret)
