"""The views that people query: a file each, named like the view, made anew whenever a text has changed.

Views hold nothing of their own, so they are no migrations: `install` drops and makes them all where one is not as
this version has it. Their names and columns are a promise to users (docs/corpus.md); columns are
added, not changed.
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
"""The views, each after those that it reads."""

INSTALLED = "select name, sha256 from views order by position"
KIND = "select relkind from pg_class where oid = to_regclass(:name)"


def text(name: str) -> str:
    """The statements that make a view and comment on it."""
    return (Path(__file__).parent / f"{name}.sql").read_text()


def wanted() -> dict[str, str]:
    """Hash of each view's text, in order."""
    return {name: hashlib.sha256(text(name).encode()).hexdigest() for name in ORDER}


def installed(conn: sa.Connection) -> dict[str, str]:
    """Hash of the text of each view that there is, in order; none before the first migration."""
    if conn.execute(sa.text("select to_regclass('views')")).scalar_one() is None:
        return {}
    return {row.name: row.sha256 for row in conn.execute(sa.text(INSTALLED))}


def install(conn: sa.Connection) -> bool:
    """Make the views as this version has them. Returns whether anything had to be done."""
    if list(installed(conn).items()) == list(wanted().items()):
        return False
    drop(conn)
    for position, (name, sha256) in enumerate(wanted().items()):
        conn.exec_driver_sql(text(name).replace("%", "%%"))
        conn.execute(
            sa.text("insert into views (name, position, sha256) values (:name, :position, :sha256)"),
            {"name": name, "position": position, "sha256": sha256},
        )
    return True


def drop(conn: sa.Connection) -> None:
    """Drop them, so that tables below them can be changed."""
    for name in reversed(installed(conn)):
        if kind := conn.execute(sa.text(KIND), {"name": name}).scalar_one_or_none():
            conn.execute(sa.text(f'drop {"materialized view" if kind == "m" else "view"} "{name}"'))
        conn.execute(sa.text("delete from views where name = :name"), {"name": name})
