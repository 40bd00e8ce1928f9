"""Releases in Postgres: their rows, and what is told of the traces that these come from."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from weavegen.errors import UsageError
from weavegen.exports.releases.manifest import SHOWN, digest
from weavegen.exports.releases.near_duplicates import Double, Key, Unit, jaccard
from weavegen.store import models as m
from weavegen.store.models.base import array_text
from weavegen.store.traces import OVER

RELEASES, KEYS, TRACES = map(m.table, (m.Release, m.ReleaseKeys, m.Trace))
PART = 100_000
"""Numbers in a part of a release's keys."""
TOGETHER = 500
"""Traces looked at by one query."""
ALIKE = 0.8
"""Similarity from which on a retrieved block is what was written after it, where the release has no threshold."""


def over(conn: sa.Connection, traces: Sequence[int]) -> set[int]:
    """Those of these traces that have ended: nothing in them changes any more."""
    found: set[int] = set()
    for some in _batched(traces):
        query = sa.select(TRACES.c.id).where(TRACES.c.id.in_(some), TRACES.c.status.in_(OVER))
        found |= set(conn.execute(query).scalars())
    return found


def _batched(values: Sequence[int]) -> Iterator[Sequence[int]]:
    for at in range(0, len(values), TOGETHER):
        yield values[at : at + TOGETHER]


# --------------------------------------------------------------------------------------------- near-duplicates

OF_TRACE = """
select array[t.id] as key, (select avg(k.reward) from ticks k where k.trace_id = t.id and k.number > 0) as reward,
  (select string_agg(b.body, E'\\n' order by b.index) from blocks b
    where b.trace_id = t.id and b.candidate_id is not null) as text
from traces t where t.id = :trace
"""
OF_TICKS = """
select array[k.number] as key, k.reward,
  (select string_agg(b.body, E'\\n' order by b.index) from blocks b
    where b.trace_id = k.trace_id and b.tick = k.number and b.candidate_id is not null) as text
from ticks k where k.trace_id = :trace
"""
OF_BLOCKS = "select array[id] as key, reward, body as text from blocks where trace_id = :trace"
OF_CANDIDATES = """
select array[c.id] as key, b.reward, c.text from candidates c
left join blocks b on b.candidate_id = c.id and b.trace_id = c.trace_id where c.trace_id = :trace
"""
OF_STEPS = """
select array[step_id] as key, null::double precision as reward, string_agg(text, E'\\n' order by position) as text
from candidates where trace_id = :trace group by step_id
"""
COMPARED = (
    (("chosen_id", "rejected_id"), OF_CANDIDATES),
    (("candidate_id",), OF_CANDIDATES),
    (("block_id",), OF_BLOCKS),
    (("step_id",), OF_STEPS),
    (("tick",), OF_TICKS),
)
"""Columns of a view's key by which its rows' own texts are found, and where."""


def comparable(key: Sequence[str]) -> bool:
    """Whether it is known what the model wrote of a row with such a key."""
    return tuple(key) == ("trace_id",) or any(set(names) <= set(key) for names, _ in COMPARED)


def units(
    conn: sa.Connection, view: str, key: Sequence[str], groups: Iterable[tuple[int, Iterable[Key]]]
) -> Iterator[Unit]:
    """Rows as near-duplicates are found, trace by trace: what the model itself wrote, without what it read.

    Of several texts about the same block only those are compared that answer the same question.
    """
    names, query = next((one for one in COMPARED if set(one[0]) <= set(key)), ((), OF_TRACE))
    places = [key.index(name) for name in names] or [0]
    asks = "label_id" in key
    for trace, keys in groups:
        known = {row.key[0]: row for row in conn.execute(sa.text(query), {"trace": trace})}
        questions: dict[Key, str] = {}
        if asks:
            columns = ", ".join(key)
            rows = conn.execute(
                sa.text(f"select {columns}, question from {view} where trace_id = :t"), {"t": trace}
            )
            questions = {tuple(row[:-1]): str(row[-1]) for row in rows}
        for one in keys:
            found = [known[one[place]] for place in places if one[place] in known]
            text = "\n".join(row.text or "" for row in found)
            yield Unit(tuple(one), text, found[0].reward if found else None, questions.get(tuple(one), ""))


# ----------------------------------------------------------------------------------------------- contamination

SHOWN_BLOCKS = """
select r.trace_id, h.example_id, h.block_id, b.trace_id as source, b.body, w.id as written_id, w.body as written,
  case when b.trace_id = r.trace_id then b.index >= r.before
    else b.created_at > coalesce(s.finished_at, s.claimed_at) end as future
from retrievals r
join retrieval_hits h on h.retrieval_id = r.id and h.used
join steps s on s.id = r.step_id
left join blocks b on b.id = h.block_id
left join lateral (
  select (n.request -> 'prompt' -> 'window' ->> 1)::bigint as index from steps n
  where n.trace_id = s.trace_id and n.tick = s.tick and n.run = s.run and n.ordinal > s.ordinal
    and n.kind = 'sample'
  order by n.ordinal limit 1
) n on true
left join blocks w on w.trace_id = r.trace_id and w.index = n.index
where r.trace_id = any(cast(:traces as bigint[])) order by r.id, h.rank
"""


@dataclass
class Finding:
    """Retrieved blocks of one kind."""

    count: int = 0
    examples: list[dict[str, int]] = field(default_factory=list)

    def add(self, row: Any) -> None:
        self.count += 1
        if len(self.examples) < SHOWN:
            self.examples.append({"trace": row.trace_id, "shown": row.block_id, "shown_from": row.source})


def contamination(
    conn: sa.Connection,
    traces: Sequence[int],
    removed: Sequence[Double],
    threshold: float | None,
    split: Callable[[int], str],
) -> dict[str, Any]:
    """What of the retrieved blocks that the model was shown in these traces should not have been.

    `split` gives the split of a trace; `removed` tells which traces have near-duplicate rows.
    """
    inside = set(traces)
    twins = {frozenset((one.key[0], one.like[0])) for one in removed if one.key[0] != one.like[0]}
    kinds = ("future", "other_split", "itself", "near_duplicate", "outside")
    found = {kind: Finding() for kind in kinds}
    shown = others = examples = 0
    for some in _batched(traces):
        for row in conn.execute(sa.text(SHOWN_BLOCKS), {"traces": array_text(some)}):
            if row.block_id is None:
                examples += 1
                continue
            shown += 1
            if row.future:
                found["future"].add(row)
            if row.written is not None and jaccard(row.body, row.written) >= (threshold or ALIKE):
                found["itself"].add(row)
            if row.source == row.trace_id:
                continue
            others += 1
            if row.source not in inside:
                found["outside"].add(row)
            if split(row.source) != split(row.trace_id):
                found["other_split"].add(row)
            if frozenset((row.source, row.trace_id)) in twins:
                found["near_duplicate"].add(row)
    return {"shown": shown, "from_other_traces": others, "examples": examples} | {
        kind: vars(one) for kind, one in found.items()
    }


# ------------------------------------------------------------------------------------------------------- facts

ABOUT = """
select array_agg(distinct coalesce(j.model, '')) as models, array_agg(distinct j.version) as versions,
  array_agg(distinct j.id) as jobs
from traces t join jobs j on j.id = t.job_id where t.id = any(cast(:traces as bigint[]))
"""
RUBRICS = "select distinct rubric from scores where trace_id = any(cast(:traces as bigint[]))"
SETTINGS = """
select distinct j.id, k.revision, j.agent, j.model, coalesce(n.settings, j.settings) as settings
from traces t join jobs j on j.id = t.job_id join ticks k on k.trace_id = t.id
left join job_settings n on n.job_id = j.id and n.revision = k.revision
where t.id = any(cast(:traces as bigint[]))
"""


def about(conn: sa.Connection, traces: Sequence[int]) -> dict[str, Any]:
    """What the manifest says of the traces: models ('' where a job named none), rubrics, hashes of settings."""
    models: set[str] = set()
    versions: set[str] = set()
    rubrics: set[str] = set()
    settings: dict[str, dict[str, str]] = {}
    for some in _batched(traces):
        given = {"traces": array_text(some)}
        row = conn.execute(sa.text(ABOUT), given).one()
        models |= set(row.models or ())
        versions |= set(row.versions or ())
        rubrics |= set(conn.execute(sa.text(RUBRICS), given).scalars())
        for job in conn.execute(sa.text(SETTINGS), given):
            value = {"agent": job.agent, "model": job.model, "settings": job.settings}
            settings.setdefault(str(job.id), {})[str(job.revision)] = digest(value)
    return {
        "models": sorted(models),
        "written_by": sorted(versions),
        "rubrics": sorted(rubrics),
        "settings": settings,
    }


def tokens_of(conn: sa.Connection, traces: Sequence[int], blocks: int = 3) -> list[tuple[str, list[int]]]:
    """A few blocks of these traces with the token ids in which the model read them."""
    query = """
        select b.rendered, k.token_ids from block_tokens k
        join blocks b on b.trace_id = k.trace_id and b.index = k.index
        where k.trace_id = any(cast(:traces as bigint[])) and k.index >= 2
        order by k.trace_id, k.index limit :blocks
    """
    rows = conn.execute(sa.text(query), {"traces": array_text(traces[:TOGETHER]), "blocks": blocks})
    return [(row.rendered, list(row.token_ids)) for row in rows]


# -------------------------------------------------------------------------------------------------------- rows


def free(conn: sa.Connection, name: str) -> None:
    """Raise UsageError where a release has this name."""
    if conn.execute(sa.select(RELEASES.c.id).where(RELEASES.c.name == name)).first() is not None:
        raise UsageError(
            f"there is a release {name!r} already, and it is never changed: give another name, or write it again "
            f"by `weavegen release {name} --rebuild DIR`"
        )


def save(conn: sa.Connection, kept: Iterable[Key], removed: Sequence[Double], **values: Any) -> int:
    """Store a release. Returns its id."""
    release = conn.execute(sa.insert(RELEASES).values(values).returning(RELEASES.c.id)).scalar_one()
    pairs = ((*one.key, *one.like) for one in removed)
    for kind, keys in (("kept", kept), ("removed", pairs)):
        numbers: list[int] = []
        part = 0
        for key in itertools.chain(keys, [None]):
            if numbers and (key is None or len(numbers) + len(key) > PART):
                row = {"release_id": release, "kind": kind, "part": part, "keys": numbers}
                conn.execute(sa.insert(KEYS).values(row))
                numbers, part = [], part + 1
            numbers += key or ()
    return int(release)


def load(conn: sa.Connection, name: str) -> Any:
    """A release's row. Raises UsageError if there is no such release."""
    row = conn.execute(sa.select(RELEASES).where(RELEASES.c.name == name)).one_or_none()
    if row is None:
        raise UsageError(f"there is no release {name!r}: `weavegen release --list` lists them")
    return row


def keys(conn: sa.Connection, release: Any) -> Iterator[Key]:
    """The keys of the rows that are in a release, in order."""
    query = (
        sa.select(KEYS.c.part).where(KEYS.c.release_id == release.id, KEYS.c.kind == "kept").order_by(KEYS.c.part)
    )
    for part in conn.execute(query).scalars().all():
        numbers = conn.execute(
            sa.select(KEYS.c["keys"]).where(
                KEYS.c.release_id == release.id, KEYS.c.kind == "kept", KEYS.c.part == part
            )
        ).scalar_one()
        width = release.key_width
        yield from (tuple(numbers[at : at + width]) for at in range(0, len(numbers), width))


def rows(conn: sa.Connection) -> Sequence[Any]:
    """All releases, newest first."""
    return conn.execute(sa.select(RELEASES).order_by(RELEASES.c.id.desc())).all()
