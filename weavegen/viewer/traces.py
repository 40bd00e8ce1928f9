"""Jobs and their traces; and of a trace its summary, its blocks, ticks and problem map."""

from dataclasses import dataclass
from typing import Any

import msgspec

from weavegen import sql
from weavegen.config import SIMULATED_MODEL
from weavegen.database import Connection
from weavegen.errors import required


def rows(conn: Connection, query: str, **values: Any) -> list[dict[str, Any]]:
    """The rows of a query in sql/."""
    return sql.run(conn, f"viewer/{query}", **values).mappings()


def simulated_jobs(conn: Connection, job_ids: set[int] | None) -> set[int]:
    """The jobs among `job_ids`, or among all (None), whose texts the simulated model writes."""
    return set(sql.run(conn, "viewer/jobs_of_model", ids=job_ids, model=SIMULATED_MODEL).scalars())


def state(conn: Connection, trace_id: int) -> dict[str, Any]:
    """How far a trace is; its `key` changes with it. Recorded blocks change when `restarts` does, their rewards when
    `ticks` does.

    Raises UsageError if there is no such trace.
    """
    return _about(conn, "state", trace_id)


def trace(conn: Connection, trace_id: int) -> dict[str, Any]:
    """The summary of a trace. Raises UsageError if there is no such trace."""
    return _about(conn, "trace", trace_id)


def _about(conn: Connection, query: str, trace_id: int) -> dict[str, Any]:
    return required(next(iter(rows(conn, query, trace=trace_id)), None), f"there is no trace {trace_id}")


def blocks(conn: Connection, trace_id: int, first: int, end: int) -> list[dict[str, Any]]:
    """Blocks `first` to `end` - 1, each with the `answers` and `penalties` of its candidate and with the number of
    `candidates` sampled for it."""
    found = rows(conn, "blocks", trace=trace_id, first=first, end=end)
    return [row | {"answers": answers(row["answers"]), "penalties": penalties(row["penalties"])} for row in found]


@dataclass(frozen=True)
class Answer:
    """The evaluator's answer to a question about a text."""

    stage: str
    """selection: about the text as sampled; raw: about the text in legal structure."""
    question: str
    yes: float
    """Probability mass of yes."""
    no: float
    score: float | None
    """Log odds. None if neither answer had any mass."""
    wording: str | None = None
    """The wording in which the question was asked; None: the question itself."""

    @property
    def share(self) -> float | None:
        """Share of yes in the mass of yes and no."""
        return self.yes / (self.yes + self.no) if self.yes + self.no > 0 else None


def answers(scores: Any) -> list[Answer]:
    """Rows of the table scores, which the database gives as JSON."""
    return msgspec.convert(scores or [], list[Answer])


PENALTIES = {
    "syntax": "does not compile",
    "extra_elements": "more top-level elements than its structure allows",
    "not_a_string": "does not begin with a string",
    "code_in_prose": "code in prose",
    "shape": "not exactly a function and its registration",
    "wrong_name": "registers another name than the function's",
    "title": "the title is not a question, or can't be read",
    "assertions": "assertions are missing, without a question, inside a try, or too many",
    "forbidden_calls": "calls that an action must not contain",
    "length_after_debug": "too long directly after a debug block",
}
"""The columns of the table penalties, in words."""


def penalties(linted: dict[str, Any] | None) -> dict[str, Any]:
    """A row of the table penalties, with the penalties above 0 as `held`. Empty if the candidate was not linted."""
    return {} if linted is None else linted | {"held": {name: linted[name] for name in PENALTIES if linted[name]}}


def problem_map(conn: Connection, trace_id: int) -> list[dict[str, Any]]:
    """The main agent with its subagents as a forest. A subagent whose parent is not recorded is a root.

    Each is its row, with the latest `evaluations` of its task, and its own subagents as `children`.
    """
    latest = rows(conn, "latest_evaluations", trace=trace_id)
    problems = {}
    for row in rows(conn, "subagents", trace=trace_id):
        evaluations = [result for result in latest if result["subagent"] == row["name"]]
        problems[row["name"]] = {**row, "evaluations": evaluations, "children": []}
    roots: list[dict[str, Any]] = []
    for name, problem in problems.items():
        parent = problems.get(problem["parent"])
        (roots if parent is None or problem["parent"] == name else parent["children"]).append(problem)
    return roots


def ticks(conn: Connection, trace_id: int) -> list[dict[str, Any]]:
    """The ticks in order, each with its blocks and the first block of the next tick."""
    return rows(conn, "ticks", trace=trace_id)
