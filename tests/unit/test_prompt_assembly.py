"""What a worker keeps of the traces that it has met, by its own clock. No services."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from weavegen.engine import prompt_assembly
from weavegen.engine.prompt_assembly import KEPT_SECONDS, Context
from weavegen.pool.conversation import Piece


def test_a_trace_that_a_worker_has_not_met_lately_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one, met as early but again since, is kept."""
    now = 1000.0
    monkeypatch.setattr(prompt_assembly, "time", SimpleNamespace(monotonic=lambda: now))
    kept = Context()

    def met(trace: int) -> dict[int, Piece]:
        return kept._pieces(cast(Any, SimpleNamespace(trace_id=trace, restarts=0)), (), 0)

    for trace in (1, 2):
        met(trace)[0] = Piece(f"block of {trace}")
    now += KEPT_SECONDS * 0.9
    assert met(2)[0].text == "block of 2"
    now += KEPT_SECONDS * 0.2
    met(3)
    assert set(kept._kept) == {2, 3}
    assert met(2)[0].text == "block of 2"
    assert met(1) == {}
