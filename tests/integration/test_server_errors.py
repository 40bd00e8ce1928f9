"""What went wrong at model servers, in PostgreSQL; and jobs that are paused because nothing can be scored."""

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain

import pytest

from tests.support.raw_server import RawServer, answer, slowly
from tests.support.waiting import until
from tests.support.worker import Worker, enqueue, scalar
from weavegen import sql
from weavegen.config import Config
from weavegen.database import Database, Statement
from weavegen.engine import model_calls
from weavegen.engine import worker as module
from weavegen.engine.model_calls import Pools
from weavegen.engine.worker import Done
from weavegen.errors import ModelError, TransientError, Unfit, Unserved
from weavegen.kernel.settings import Settings
from weavegen.kernel.steps import Delegate, Score
from weavegen.pool import http
from weavegen.pool import pool as pools
from weavegen.pool.client import ModelClient
from weavegen.services.pool_members import Members
from weavegen.store import delegation, jobs, reports, servers, steps
from weavegen.store.states import JobState
from weavegen.store.steps import Claimed

OUT_OF_MEMORY = answer({"error": {"message": "CUDA out of memory"}}, "500 Internal Server Error")


def sample(client: ModelClient) -> object:
    return client.sample("#", n=1, max_tokens=9, temperature=1, top_k=0, repetition_penalty=1, seed=1, stop=())


def failed(db: Database, url: str, kind: str = "status", count: int = 1, age: float = 0.0) -> None:
    with db.begin() as conn:
        values = {"kind": kind, "errors": count, "since_ok": count, "error": f"it is {kind}", "age": age}
        sql.run(conn, "store/server_failed", url=url, **values)


def test_failures_of_many_processes_add_up(db: Database) -> None:
    url, other = "http://a/v1", "http://b/v1"
    failed(db, url, count=2, age=60)
    failed(db, url, "timeout", age=3)
    failed(db, other, count=2)
    with db.begin() as conn:
        [one, two] = servers.health(conn, [url, other])
        assert (one.errors, one.errors_since_ok, one.by_kind) == (3, 3, {"status": 2, "timeout": 1})
        assert (one.last_error, one.kind, one.failing, two.failing) == ("it is timeout", "timeout", True, False)
        assert 3 <= one.age < 10
        assert [server.url for server in servers.failing(conn, [url, other])] == [url]
        assert servers.failing(conn, [other]) == [], "it left the pool"
        sql.run(conn, "store/server_answered", url=url)
        [one] = servers.health(conn, [url])
        assert (one.errors, one.errors_since_ok, one.failing) == (3, 0, False)
        assert one.last_ok_at is not None
    failed(db, url, count=9)
    with db.begin() as conn:
        assert servers.failing(conn, [url])
        conn.execute(Statement("update server_health set last_error_at = last_error_at - interval '301 s'"))
        assert servers.failing(conn, [url]) == [], "no worker has asked it for five minutes"


def test_a_step_that_waits_says_why(db: Database, config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_calls, "database", lambda: db)
    monkeypatch.setattr(model_calls, "single", lambda: db.with_autocommit(True))
    monkeypatch.setattr(model_calls, "MEMBERS_SECONDS", 0.2)
    monkeypatch.setattr(pools, "NO_SERVER_TIMEOUT_SECONDS", 3.0)
    enqueue(db)
    worker = Worker(db)
    [message] = worker.engine.start_queued()
    held = worker.claim(message.step_id)
    assert held is not None

    with RawServer(lambda request: OUT_OF_MEMORY) as server:
        monkeypatch.setattr(Pools, "_read", lambda self: Members({server.url: "EMPTY"}, {}))
        asked = Pools(config)
        raised: list[BaseException] = []

        def ask() -> None:
            try:
                asked.call(held, None, 1, sample)
            except TransientError as error:
                raised.append(error)

        thread = threading.Thread(target=ask)
        thread.start()
        reason = until(lambda: scalar(db, "select failure from steps where id = :id", id=held.id), seconds=15)
        assert "/v1/completions answered 500: CUDA out of memory" in reason
        assert scalar(db, "select status from steps where id = :id", id=held.id) == "running"
        thread.join(30)
        assert "answered 500: CUDA out of memory, " in str(raised[0])
        assert "times, the last" in str(raised[0])

        def is_failing() -> bool:
            with db.connect() as conn:
                return bool(servers.failing(conn, [server.url]))

        until(is_failing, "the server is not failing", seconds=15)
        server.reply = lambda request: None
        until(lambda: asked.pool(None).trouble() is None, "the server does not return", seconds=40)
        ask()
        until(lambda: not is_failing(), "the server is failing for ever", seconds=15)
    asked.pool(None).close()


def test_a_job_that_names_no_model_keeps_the_one_that_answers_first(
    db: Database, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first server is restarted with another model."""
    monkeypatch.setattr(model_calls, "database", lambda: db)
    monkeypatch.setattr(model_calls, "single", lambda: db.with_autocommit(True))
    monkeypatch.setattr(model_calls, "NAMES_SECONDS", 0.0)
    enqueue(db, 6)
    worker = Worker(db)
    held = [claim for message in worker.engine.start_queued() if (claim := worker.claim(message.step_id))]
    asked = Pools(config)

    def ask(client: ModelClient) -> str:
        sample(client)
        return client.model

    def model(claim: Claimed) -> str:
        with db.begin() as conn:
            spec = worker.engine.spec(conn, claim.trace_id, 0)
        return asked.call(claim, spec.model, 1, ask)

    with RawServer() as first, RawServer() as second:
        monkeypatch.setattr(Pools, "_read", lambda self: Members({first.url: "EMPTY", second.url: "EMPTY"}, {}))
        first.model = second.model = "A"
        with pytest.raises(ZeroDivisionError):  # its traces have homes, but nothing has been answered
            asked.call(held[0], None, 1, lambda client: 1 // 0)
        claims = [replace(claim, server=first.url) for claim in held]
        models = [model(claim) for claim in claims[:2]]
        first.model = "B"
        first.reply = lambda request: None if request["model"] == "B" else answer({}, "404 Not Found")
        asked.refresh()
        models += [model(claim) for claim in claims]
        for name in (None, "A"):
            asked.pool(name).close()
    assert models == ["A"] * 8
    assert scalar(db, "select model from jobs") == "A"
    assert scalar(db, "select asked_model from jobs") is None
    with db.begin() as conn:
        delegation.create(conn, 1, held[0].id, Delegate(agent="nop", task={}, label="task"), Settings())
    assert scalar(db, "select model from jobs where called_by is not null") == "A"


def test_a_server_that_has_another_model_now_is_not_taken_for_one_without_completions() -> None:
    with RawServer() as server:
        server.paths = ("/v1/completions", "/v1/chat/completions")
        server.model = "A"
        client = ModelClient(server.url, "EMPTY", None)
        assert client.model == "A"
        server.model = "B"
        server.reply = lambda request: answer({}, "404 Not Found" if request["model"] == "A" else "200 OK")
        with pytest.raises(Unfit, match="it was restarted with another model, B"):
            sample(client)
        assert not client.chat_only
        client.close()


def test_a_job_that_can_not_score_is_paused(db: Database, config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """The third failed score pauses it and is given back. After `resume` it goes on."""
    monkeypatch.setattr(module, "database", lambda: db)
    monkeypatch.setattr(module, "single", lambda: db.with_autocommit(True))
    job, world = enqueue(db, 5), Worker(db)
    knows = False

    def score(worker: module.Worker, claim: Claimed, step: Score) -> Done:
        if not knows:
            raise ModelError("no mass")
        with db.begin() as conn:
            journal, _ = steps.load(conn, claim.trace_id, claim.tick, claim.run)
        return Done(world.world.answer(step, journal))

    worker = module.Worker(config, lambda *_: None, {Score: score})
    waiting, scores = world.engine.start_queued(), []
    while waiting:
        message = waiting.pop(0)
        if message.kind == "score":
            scores.append(message)
        else:
            held = world.claim(message.step_id)
            assert held is not None
            waiting += world.finish(held)
    assert len(scores) == 5
    with ThreadPoolExecutor(5) as threads:
        outcomes = [outcome.status for outcome in threads.map(worker.run, (step.step_id for step in scores))]
    assert outcomes.count("failed") == 2
    with db.connect() as conn:
        [row] = reports.jobs(conn, job)
    assert (row.state, row.failed, row.running) == ("paused", 2, 3)
    assert f"no mass; `weavegen resume {job}` goes on" in str(row.pause_reason)
    knows = True
    with db.begin() as conn:
        jobs.set_state(conn, JobState.ACTIVE, job)
        [row] = reports.jobs(conn, job)
    assert (row.state, row.pause_reason) == ("active", None)
    assert [worker.run(step.step_id).status for step in scores].count("done") == 3
    knows = False
    with db.begin() as conn:
        jobs.require_scores(conn, scalar(db, "select min(id) from traces"))  # some scores are done


def test_a_server_that_fails_every_trace_is_no_fault_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its probe succeeds, as that of a server which has no memory for long prompts."""
    monkeypatch.setattr(pools, "BACKOFF_SECONDS", 0.01)
    monkeypatch.setattr(pools, "METRICS_INTERVAL_SECONDS", 0.05)

    def ask(client: ModelClient) -> None:
        client.sample(
            "a long prompt", n=1, max_tokens=5, temperature=1.0, top_k=0, repetition_penalty=1.0, seed=1, stop=()
        )

    with RawServer(lambda request: None if request["max_tokens"] == 1 else OUT_OF_MEMORY) as server:
        pool = pools.Pool([server.url], "key", None)
        try:
            with pytest.raises(TransientError) as caught:
                pool.with_server(1, server.url, 1, ask)
            assert type(caught.value) is TransientError, "it may be the prompt of this trace alone"
            with pytest.raises(Unserved, match="CUDA out of memory"):
                pool.with_server(2, server.url, 1, ask)
            server.reply = lambda request: None
            pool.with_server(3, server.url, 1, ask)
            server.reply = lambda request: None if request["max_tokens"] == 1 else OUT_OF_MEMORY
            with pytest.raises(TransientError) as caught:
                pool.with_server(1, server.url, 1, ask)
            assert type(caught.value) is TransientError, "others were answered since"
        finally:
            pool.close()


def test_an_answer_that_has_begun_must_soon_be_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "BODY_SECONDS", 0.5)
    head, _, body = answer(b"{}" * 100).partition(b"\r\n\r\n")
    with RawServer(lambda request: chain([head + b"\r\n\r\n"], slowly(body, 0.2))) as server:
        began = time.monotonic()
        with pytest.raises(TransientError, match="did not answer in time"):
            http.Http("key", 60).post(f"{server.url}/completions", {"prompt": "#"}, dict)
        assert time.monotonic() - began < 10


@pytest.mark.parametrize("chunked", [True, False])
def test_blank_lines_before_an_answer_keep_the_connection(chunked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """DeepSeek's API sends them while a request waits for its turn."""
    monkeypatch.setattr(http, "BODY_SECONDS", 0.5)
    head = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: 12"

    def reply(request: object) -> Iterator[bytes]:
        yield b"HTTP/1.1 200 OK\r\n%b\r\n\r\n" % head
        for line in [b"\n"] * 10 + [b"{}"]:
            yield b"%x\r\n%b\r\n" % (len(line), line) if chunked else line
            time.sleep(0.1)
        if chunked:
            yield b"0\r\n\r\n"

    with RawServer(reply) as server:
        assert http.Http("key", 60).post(f"{server.url}/completions", {"prompt": "#"}, dict) == {}


def test_a_connection_to_a_host_that_is_gone_ends() -> None:
    with RawServer(lambda request: b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}") as server:
        client = http.Http("key", 60)
        client.post(f"{server.url}/completions", {"prompt": "#"}, dict)
        connection = client._direct.connection_from_url(server.url).pool.get()
        used = connection.sock
        assert used.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert used.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 30_000
        assert used.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 15
        assert used.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
        used.close()  # it was taken out of the client's pool
        client.close()
