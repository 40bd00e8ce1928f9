"""The views that people query: one .sql file each, named like the view.

Views hold no data of their own, so they need no migrations: `install` drops and makes all of them where a text has
changed. Their names and columns are an interface (docs/corpus.md): columns are added, not changed.

Materialised views are refreshed when somebody asks for it, and by a beat task as they age.
"""

import hashlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from weavegen import sql
from weavegen.database import Connection
from weavegen.errors import UsageError

ORDER = (
    "corpus", "text_examples", "corpus_candidates", "campaign_answers",
    "annotated_candidates", "calibration_pairs", "block_stats", "tick_stats", "tick_sums",
    "trace_stats", "yield_by_job", "learning_curves", "step_times", "candidate_stats",
    "penalty_stats", "errors_by_stage", "evaluator_calibration", "question_stats",
    "retrieval_outcomes", "freshness", "pool_usage", "candidate_values", "sft_examples",
    "preference_pairs", "kto_examples", "grpo_prompts", "stepwise_examples",
    "verifier_labels", "sampled_groups", "retrieval_examples", "conversations",
)  # fmt: skip
"""The views, each after the views that it reads."""

MIN_AGE_SECONDS = 60.0
"""Age of a view's rows below which it is not refreshed."""
MIN_AGE_RATIO = 20.0
"""The age must also be this many times the duration of the last refresh, so a view takes 5 % of a core at most."""


def text(name: str) -> str:
    """The statements that make a view and comment on it."""
    return sql.included((Path(__file__).parent / f"{name}.sql").read_text())


def expected() -> dict[str, str]:
    """Hash of each view's text, in order."""
    return {name: hashlib.sha256(text(name).encode()).hexdigest() for name in ORDER}


def installed(conn: Connection) -> dict[str, str]:
    """Hash of the text of each view in the database, in order; none before the first migration."""
    if not sql.run(conn, "store/views_exist").scalar_one():
        return {}
    return {row.name: row.sha256 for row in sql.run(conn, "store/installed_views")}


def install(conn: Connection) -> bool:
    """Make the views as this version has them. Returns whether one had changed."""
    if list(installed(conn).items()) == list(expected().items()):
        return False
    sql.run(conn, "store/limit_refresh")  # to make a materialised view is to refresh it
    drop(conn)
    for position, (name, sha256) in enumerate(expected().items()):
        conn.execute(text(name).encode())
        sql.run(conn, "store/save_view", name=name, position=position, sha256=sha256)
    return True


def drop(conn: Connection) -> None:
    """Drop the views, so that the tables that they read can be changed."""
    for name in reversed(installed(conn)):
        if kind := sql.run(conn, "store/kind_of_view", name=name).scalar_one_or_none():
            conn.execute(sql.load("store/drop_view", kind=kind, name=name))
        sql.run(conn, "store/forget_view", name=name)


def refresh(conn: Connection, names: Sequence[str] = ()) -> Iterator[Any]:
    """Refresh these materialised views, or all, each in a transaction of its own. Raises UsageError.

    Views are refreshed in the order of ORDER, because some read others. Yields rows (view, rows, seconds).
    """
    materialised = sql.run(conn, "store/materialised_views").scalars()
    known = [name for name in installed(conn) if name in materialised]
    if unknown := [name for name in names if name not in known]:
        raise UsageError(f"there is no materialised view {', '.join(unknown)}: choose from {', '.join(known)}")
    conn.commit()
    for name in known:
        if not names or name in names:
            yield _refresh(conn, name)


def refresh_next(conn: Connection) -> Any:
    """Refresh the first materialised view that is due and that nobody else refreshes. None: there is none."""
    name = sql.run(conn, "store/views_due", least=MIN_AGE_SECONDS, rest=MIN_AGE_RATIO).scalar_one_or_none()
    if name is None:
        conn.rollback()
        return None
    return _refresh(conn, name)


def _refresh(conn: Connection, name: str) -> Any:
    began = time.perf_counter()
    sql.run(conn, "store/limit_refresh")
    sql.run(conn, "store/begin_refresh", name=name)
    conn.execute(sql.load("store/refresh_view", name=name))
    conn.execute(sql.load("store/analyze_view", name=name))
    seconds = round(time.perf_counter() - began, 3)
    refreshed = conn.execute(sql.load("store/end_refresh", name=name), {"name": name, "seconds": seconds}).one()
    conn.commit()
    return refreshed
