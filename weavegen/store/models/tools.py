"""Programs that searches evaluated, and the library of tools that agents make and reuse."""

import sqlalchemy as sa

from weavegen.store.models.columns import Numbers, column, now, reference, table

TOOLS = table(
    "tools",
    "Functions that agents made for reuse. They are found by BM25.",
    column("name", str, "Name of the function.", unique=True),
    column("description", str, "What its newest version does."),
    column("signature", str, "First line of its newest version: `def name(...) -> ...`."),
    now("created_at", "When it was first made."),
)

VERSIONS = table(
    "tool_versions",
    "The versions of tools. Rows are never changed. The newest version is used.",
    reference("tool_id", "Its tool."),
    column("version", int, "Number of the version, from 1."),
    column("source", str, "Python source that defines the function."),
    column("tests", str, "Source of test(function), which it passed; empty: none."),
    column("evaluator", str, "Source of evaluate(function), which scored it; empty: none."),
    column("score", float | None, "Score by the evaluator, higher is better; null: not scored."),
    column("generality", float | None, "How well it serves other requests: log odds; null: not judged."),
    reference("made_by", "The trace that made it.", to="traces", ondelete="SET NULL", index=True),
    reference(
        "searched_by",
        "The trace of the search that found it (programs.trace_id).",
        to="traces",
        ondelete="SET NULL",
        index=True,
    ),
    column("program", int | None, "Number of the program in that search."),
    now("created_at", "When it was made."),
    sa.UniqueConstraint("tool_id", "version"),
)

USES = table(
    "tool_uses",
    "Calls of tools of the library.",
    reference("tool_version_id", "The version called.", index=True),
    reference("trace_id", "The trace that called it.", index=True),
    column("success", bool, "Whether the call returned a value."),
    now("at", "When it was called."),
)

PROGRAMS = table(
    "programs",
    "Every program that a search evaluated, failed ones included.",
    reference("trace_id", "The search."),
    column("number", int, "Number among the programs of the search, from 0, without gaps."),
    column("tick", int, "Number of the tick in which it was evaluated."),
    column("generation", int, "Generation, from 1; 0: the program that the search began with."),
    column("island", int | None, "Island that it was written for, from 0; null: the first program."),
    column("parents", Numbers(sa.BigInteger), "Numbers of the programs in the prompt."),
    column("source", str, "Its text; empty: the model's message held no program."),
    column("score", float | None, "Score, higher is better; null: none, see error."),
    column("signature", Numbers(sa.Double), "Its score on each instance."),
    column("error", str | None, "Why it has no score; null: it has one."),
    reference(
        "candidate_id",
        "The message that held it; null: the program that the search began with.",
        index=True,
        nullable=True,
    ),
    now("tried_at", "When it was recorded."),
    sa.UniqueConstraint("trace_id", "number"),
)
