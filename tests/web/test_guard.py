"""Which requests are answered, and with which headers."""

import http.client
import json
from urllib.parse import urlsplit

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from tests.web.traces import new_trace
from weavegen.config import Config
from weavegen.store import messages
from weavegen.viewer import database


def ask(
    address: str, method: str, path: str, headers: dict[str, str], body: str | None = None
) -> tuple[int, str, str]:
    """Status, Content-Security-Policy and text of a response."""
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=60)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.headers["content-security-policy"], answer.read().decode()
    finally:
        connection.close()


def test_other_names_for_this_host_are_refused(address: str) -> None:
    assert ask(address, "GET", "/", {"Host": "attacker.example"})[0] == 403
    assert ask(address, "GET", "/", {"Host": "localhost:8991"})[0] == 200


@pytest.mark.parametrize(
    "path",
    ["/", "/traces/987654", "/nothing", "/static/app.css", "/jobs/99999999999999999999", "/jobs/1/report"],
)
def test_every_answer_has_a_policy(address: str, path: str) -> None:
    status, policy, text = ask(address, "GET", path, {})
    assert status in (200, 404)
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert "Traceback" not in text


@pytest.mark.parametrize("origin", [None, "https://attacker.example", "null"])
def test_other_sites_can_not_write(address: str, corpus: sa.Engine, origin: str | None) -> None:
    with corpus.begin() as conn:
        trace = new_trace(conn)
        conn.execute(sa.text("insert into channels (trace_id, name) values (:id, 'talk')"), {"id": trace})
    headers = {"Content-Type": "application/x-www-form-urlencoded"} | ({"Origin": origin} if origin else {})
    status, _, _ = ask(address, "POST", f"/traces/{trace}/chat", headers, "channel=talk&text=hello")
    assert status == 403
    with corpus.connect() as conn:
        assert not messages.since(conn, messages.channels(conn, trace)["talk"], 0)


def test_a_stream_resumes_where_it_was_interrupted(address: str, corpus: sa.Engine) -> None:
    with corpus.begin() as conn:
        trace = new_trace(conn, status="ended")
        conn.execute(sa.text("update traces set blocks = 5 where id = :id"), {"id": trace})
    path = f"/events/traces/{trace}"
    _, _, text = ask(address, "GET", path, {})
    [mark] = [line for line in text.splitlines() if line.startswith("data: {")]
    assert json.loads(mark.removeprefix("data: "))["blocks"] == 5
    _, _, text = ask(address, "GET", path, {"Last-Event-ID": "0:5:0:ended"})
    assert "event: state" not in text
    assert "event: over" in text


def test_the_reader_can_not_write(config: Config, corpus: sa.Engine) -> None:
    reader = database.reader(config, corpus.url.render_as_string(hide_password=False))
    with reader.connect() as conn, pytest.raises(DBAPIError):
        conn.execute(sa.text("update jobs set name = 'x'"))
    reader.dispose()
