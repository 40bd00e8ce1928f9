"""The views that people query: one .sql file each, named like the view.

Views hold no data of their own, so they need no migrations: `install` drops and makes all of them where a text has
changed. Their names and columns are an interface (docs/corpus.md): columns are added, not changed.
"""

import hashlib
from pathlib import Path

import sqlalchemy as sa

ORDER = (
    "corpus", "text_examples", "corpus_candidates", "campaign_answers",
    "calibration_pairs", "block_stats", "tick_stats", "trace_stats",
    "yield_by_job", "learning_curves", "step_times", "candidate_stats",
    "penalty_stats", "errors_by_stage", "evaluator_calibration", "question_stats",
    "retrieval_outcomes", "freshness", "pool_usage", "candidate_values", "sft_examples",
    "preference_pairs", "kto_examples", "grpo_prompts", "stepwise_examples",
    "verifier_labels", "sampled_groups", "retrieval_examples", "conversations",
)  # fmt: skip
"""The views, each after the views that it reads."""

INSTALLED = "select name, sha256 from views order by position"
KIND = "select relkind from pg_class where oid = to_regclass(:name)"


def text(name: str) -> str:
    """The statements that make a view and comment on it."""
    return (Path(__file__).parent / f"{name}.sql").read_text()


def expected() -> dict[str, str]:
    """Hash of each view's text, in order."""
    return {name: hashlib.sha256(text(name).encode()).hexdigest() for name in ORDER}


def installed(conn: sa.Connection) -> dict[str, str]:
    """Hash of the text of each view in the database, in order; none before the first migration."""
    if conn.execute(sa.text("select to_regclass('views')")).scalar_one() is None:
        return {}
    return {row.name: row.sha256 for row in conn.execute(sa.text(INSTALLED))}


def install(conn: sa.Connection) -> bool:
    """Make the views as this version has them. Returns whether one had changed."""
    if list(installed(conn).items()) == list(expected().items()):
        return False
    drop(conn)
    for position, (name, sha256) in enumerate(expected().items()):
        conn.exec_driver_sql(text(name).replace("%", "%%"))
        conn.execute(
            sa.text("insert into views (name, position, sha256) values (:name, :position, :sha256)"),
            {"name": name, "position": position, "sha256": sha256},
        )
    return True


def drop(conn: sa.Connection) -> None:
    """Drop the views, so that the tables that they read can be changed."""
    for name in reversed(installed(conn)):
        if kind := conn.execute(sa.text(KIND), {"name": name}).scalar_one_or_none():
            conn.execute(sa.text(f'drop {"materialized view" if kind == "m" else "view"} "{name}"'))
        conn.execute(sa.text("delete from views where name = :name"), {"name": name})
