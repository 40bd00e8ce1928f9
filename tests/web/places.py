"""Addresses of all pages of the viewer."""

from weavegen.database import Database, Statement

OF_A_TRACE = (
    "", "/blocks/{}", "/blocks/{}/candidates", "/blocks/{}/candidates?diff=1", "/ticks", "/ticks/2", "/problems",
    "/about",
)  # fmt: skip
OTHERS: tuple[str, ...] = ("/", "/jobs/1", "/jobs/1/report", "/search?q=the", "/figures", "/requests", "/review")
OTHERS += ("/jobs/1?sort=-reward&blocks_min=1", "/compare/jobs?a=1&b=2", "/compare/traces?a={}&b=1&diff=1")
PLACES = (*OTHERS, *(f"/traces/{{}}{place}" for place in OF_A_TRACE))
"""Addresses of pages, with fields for the values that `rejected` returns."""


def rejected(db: Database) -> tuple[int, int]:
    """Trace and index of a block for which several candidates were sampled."""
    query = """
        select c.trace_id, c.block_index from candidates c join blocks b on b.candidate_id = c.id
        join penalties p on p.candidate_id = c.id where b.index >= 30
        and (select count(*) from candidates o where o.step_id = c.step_id) > 2 order by c.id limit 1
        """
    with db.connect() as conn:
        row = conn.execute(Statement(query)).one()
    return row[0], row[1]
