"""Prometheus scrapes the viewer."""

import time
import urllib.error
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.web.serving import tell
from weavegen.database import Database, Statement
from weavegen.monitoring import metrics


def test_it_gets_the_output_of_the_command(address: str, corpus: Database, redis_url: str) -> None:
    for number in range(3):
        began = time.perf_counter()
        with urllib.request.urlopen(f"{address}/metrics") as answer:
            text = answer.read().decode()
        tell(f"scrape {number + 1}: {1000 * (time.perf_counter() - began):.0f} ms, {len(text):,} bytes")
    assert answer.headers["content-type"] == metrics.CONTENT_TYPE
    with corpus.connect() as conn:
        expected = {family.name for family in text_string_to_metric_families(metrics.text(conn))}
        blocks = conn.execute(Statement("select sum(blocks - coalesce(fork_at, 0)) from traces")).scalar_one()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert set(families) == expected
    assert [sample.value for sample in families["weavegen_blocks"].samples] == [blocks]


def test_a_request_with_another_host_name_is_refused(address: str) -> None:
    asked = urllib.request.Request(f"{address}/metrics", headers={"Host": "weavegen.example:8991"})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(asked)
    with refused.value:
        assert refused.value.code == 403
