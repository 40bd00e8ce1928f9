"""Programs in Postgres: those that searches evaluated, with their scores."""

from collections.abc import Mapping

from weavegen import sql
from weavegen.database import Connection
from weavegen.kernel.steps import ProgramEvaluated


def save(conn: Connection, trace_id: int, tick: int, tried: ProgramEvaluated, steps: Mapping[int, int]) -> None:
    """Store a program. `steps` maps the tick's ordinals to step ids.

    A program with this number or a higher one is replaced: it belongs to a tick that was started over since.
    """
    sql.run(conn, "store/drop_programs", trace=trace_id, number=tried.number)
    candidate = None
    if tried.candidate is not None:
        ordinal, position = tried.candidate
        # None in a fork's first tick, where the candidate belongs to a step of another trace.
        candidate = sql.run(conn, "store/candidate_id", step=steps[ordinal], position=position).scalar_one_or_none()
    columns = ("number", "generation", "island", "parents", "source", "score", "signature", "error")
    values = {name: getattr(tried, name) for name in columns}
    sql.run(conn, "store/save_program", trace=trace_id, tick=tick, candidate=candidate, **values)
