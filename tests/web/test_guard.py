"""Which requests are answered, and with which headers."""

import json

import psycopg
import pytest
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse

from tests.web.serving import ask
from tests.web.traces import new_trace
from weavegen.config import Config
from weavegen.database import Database, Statement
from weavegen.store import messages
from weavegen.viewer.app import reader
from weavegen.viewer.guard import LOCAL, Guard, host_name


def test_other_names_for_this_host_are_refused(address: str) -> None:
    assert ask(address, "GET", "/", {"Host": "attacker.example"})[0] == 403
    assert ask(address, "GET", "/", {"Host": "localhost:8991"})[0] == 200


MALFORMED = (
    "evil.com@127.0.0.1", "127.0.0.1@evil.com", "evil.com:80@127.0.0.1", "user:password@localhost",
    "@127.0.0.1", "127.0.0.1#evil.com", "127.0.0.1?evil.com", "127.0.0.1/evil.com", "/127.0.0.1", "//127.0.0.1",
    "evil.com\\@localhost", "http://127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:-1", "127.0.0.1:65536",
    "127.0.0.1:80:80", "127.0.0.1:99999999", "127.0.0.1 evil.com", "127.0.0.1,evil.com", "localhost.evil.com",
    "evil.localhost", "localhost.", "127.0.0.1.", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "0.0.0.0",
    "[::1", "::1", "[::1]evil.com", "[::1%lo]", "[::ffff:127.0.0.1]", "[::1]:", "[localhost]", "127.0.0.1\t",
    "localhost%00", "loca\xadlhost", "127\uff0e0\uff0e0\uff0e1", "", " ", ":8991", "*", "%6cocalhost",
    "xn--localhost-", "127.0.0.1;evil.com", "'localhost'", "<localhost>",
)  # fmt: skip


@pytest.mark.parametrize("host", MALFORMED, ids=ascii)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_malformed_or_foreign_host_is_refused(method: str, host: str) -> None:
    """A browser or an HTTP server would never pass on some of these. The guard does not rely on that."""
    for hosts in (LOCAL, None):
        guard = Guard(PlainTextResponse("answered"), hosts)
        headers = Headers(raw=[(b"host", host.encode()), (b"origin", f"http://{host}".encode())])
        if hosts is None and host_name(host) is not None:
            continue  # a viewer for a network answers to other names, in the right form
        assert guard.refusal(method, headers) is not None


def test_hosts_that_a_browser_sends_are_accepted() -> None:
    guard = Guard(PlainTextResponse("answered"), LOCAL)
    for host in ("127.0.0.1", "127.0.0.1:8991", "localhost:1", "LocalHost:65535", "[::1]", "[::1]:8991"):
        headers = Headers(raw=[(b"host", host.encode()), (b"origin", f"http://{host}".encode())])
        assert guard.refusal("GET", headers) is None
        assert guard.refusal("POST", headers) is None
    assert Guard(PlainTextResponse("answered"), None).refusal("GET", Headers({"host": "box-1.lan:80"})) is None
    twice = Headers(raw=[(b"host", b"localhost"), (b"host", b"localhost")])
    assert guard.refusal("GET", twice) is not None
    assert guard.refusal("GET", Headers()) is not None


def test_the_server_refuses_a_host_with_a_user(address: str) -> None:
    for host in ("evil.com@127.0.0.1", "127.0.0.1:1:2", "[::1]x"):
        assert ask(address, "GET", "/", {"Host": host})[0] in (400, 403)


NUMBERS = (
    "4611686018427387903", "9223372036854775807", "9223372036854775808", "18446744073709551616", "-1", "1e3",
    "0x1", "1_000", "%00", "%C2%B2", "%D9%A1", "+1", " 1", "", "9" * 5000, "999999999999999",
    "1000000000000000", "nan", "1.0", "1;2", "%FF",
)  # fmt: skip
"""Numbers that no row has, and texts that are not numbers."""
QUERIES = (
    *(
        "/jobs/{n}",
        "/jobs/{n}/report",
        "/jobs/{n}/report.html",
        "/candidates/{n}",
        "/requests/{n}",
        "/traces/{n}",
        "/traces/{n}/blocks",
    ),
    *("/traces/{n}/blocks/{n}", "/traces/{n}/blocks/{n}/candidates", "/traces/{n}/ticks", "/traces/{n}/ticks/{n}"),
    *("/review?job={n}", "/review?page={n}"),
    *("/compare/jobs?a={n}&b={job}", "/compare/traces?a={trace}&b={n}", "/compare/traces?a={trace}&b={trace}&tick={n}"),
    *("/jobs/{job}?sort={n}", "/jobs/{job}?reward_min={n}", "/jobs/{job}?tag={n}&result={n}&bootstrap={n}"),
    *("/traces/{trace}/next?kind={n}", "/traces/{trace}/next?kind=error&after={n}"),
    *("/traces/{n}/problems", "/traces/{n}/about", "/traces/{n}/chat", "/traces/{n}.py", "/traces/{n}.json"),
    *("/events/traces/{n}", "/events/traces/{n}/chat", "/jobs/{job}?page={n}", "/jobs/{job}?status={n}"),
    *("/traces/{trace}/blocks/{n}", "/traces/{trace}/blocks/{n}/candidates?diff={n}", "/traces/{trace}/ticks/{n}"),
    *("/traces/{trace}/blocks?first={n}&end=5", "/traces/{trace}/blocks?first=0&end={n}", "/figures?job={n}"),
    *("/search?q=a&job={n}", "/search?q=a&trace={n}", "/search?q={n}&type={n}", "/traces/{trace}/chat?channel={n}"),
    *("/events/jobs?job={n}", "/events/traces/{trace}?known={n}", "/events/traces/{trace}/chat?channel=talk&known={n}"),
)


@pytest.mark.parametrize("query", QUERIES)
def test_no_number_in_an_address_is_an_error_of_the_server(address: str, corpus: Database, query: str) -> None:
    with corpus.begin() as conn:
        trace = new_trace(conn, status="ended")
        job = conn.execute(Statement("select job_id from traces where id = :id"), {"id": trace}).scalar_one()
        conn.execute(Statement("insert into channels (trace_id, name) values (:id, 'talk')"), {"id": trace})
    wrong = []
    for number in NUMBERS:
        if number == "" and query.startswith("/events/jobs"):
            continue  # all jobs, a stream without an end
        path = query.format(n=number.replace(" ", "%20"), trace=trace, job=job)
        status, _, text = ask(address, "GET", path, {})
        own_form = status in (200, 307) or "<!doctype html>" in text
        if status not in (200, 307, 400, 404) or not own_form or "event: away" in text:
            wrong.append((path[:80], status, text[:80]))
    assert wrong == []


@pytest.mark.parametrize(
    "path", ["/", "/traces/987654", "/nothing", "/static/app.css", "/jobs/99999999999999999999", "/jobs/1/report"]
)
def test_every_answer_has_a_policy(address: str, path: str) -> None:
    status, policy, text = ask(address, "GET", path, {})
    assert status in (200, 404)
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert "Traceback" not in text


@pytest.mark.parametrize("origin", [None, "https://attacker.example", "null"])
def test_other_sites_can_not_write(address: str, corpus: Database, origin: str | None) -> None:
    with corpus.begin() as conn:
        trace = new_trace(conn)
        conn.execute(Statement("insert into channels (trace_id, name) values (:id, 'talk')"), {"id": trace})
    headers = {"Content-Type": "application/x-www-form-urlencoded"} | ({"Origin": origin} if origin else {})
    status, _, _ = ask(address, "POST", f"/traces/{trace}/chat", headers, "channel=talk&text=hello")
    assert status == 403
    with corpus.connect() as conn:
        assert not messages.since(conn, messages.channels(conn, trace)["talk"], 0)


def test_a_stream_resumes_where_it_was_interrupted(address: str, corpus: Database) -> None:
    with corpus.begin() as conn:
        trace = new_trace(conn, status="ended")
        conn.execute(Statement("update traces set blocks = 5 where id = :id"), {"id": trace})
    path = f"/events/traces/{trace}"
    _, _, text = ask(address, "GET", path, {})
    [mark] = [line for line in text.splitlines() if line.startswith("data: {")]
    assert json.loads(mark.removeprefix("data: "))["blocks"] == 5
    _, _, text = ask(address, "GET", path, {"Last-Event-ID": "0:5:0:ended"})
    assert "event: state" not in text
    assert "event: over" in text


def test_the_reader_can_not_write(config: Config, corpus: Database) -> None:
    db = reader(config, corpus.url)
    with db.connect() as conn, pytest.raises(psycopg.Error):
        conn.execute(Statement("update jobs set name = 'x'"))
    db.close()
