"""What a report says, read from the views under the role that can only read."""

import datetime
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import msgspec
import sqlalchemy as sa

from weavegen import __version__
from weavegen.config import SIMULATED_MODEL
from weavegen.errors import UsageError
from weavegen.exports.releases.manifest import code_sha256
from weavegen.kernel import settings
from weavegen.store import reports
from weavegen.store.views import refresh as views

READ = (
    "tick_stats", "block_stats", "candidate_stats", "step_times", "errors_by_stage", "evaluator_calibration",
    "question_stats",
)  # fmt: skip
"""Materialised views that are read."""
PARTS = 60
"""Of the time axis, about."""
STEP = 0.5
"""Width of the bins of scores, log odds."""
FARTHEST = 12
"""Scores beyond this, either way, are counted in the outermost bins."""
REWARD_STEP = 0.025
"""Width of the bins of rewards, which lie between 0 and 0.5."""
TRACES = 40
"""That are listed."""
EXAMPLES = 3
"""Of the best, and of the worst."""
EXCERPT = 4_000
"""Letters of an example that are shown."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Report:
    """A job, as its page tells it. Lists are tables, of dicts by column. What is not known is None."""

    made_at: datetime.datetime
    version: str
    """Of weavegen that made the report."""
    code_sha256: str
    """Of its files, hexadecimal."""
    database: str
    """Version of PostgreSQL."""
    as_of: datetime.datetime | None
    """As of when the oldest of the materialised views is that were read."""
    simulated: bool
    """The texts, or some of them, were written by weavegen's simulated model."""
    job: Row
    sums: Row
    """Of the view yield_by_job."""
    called: list[Row]
    """Jobs whose traces this one's asked for; none of them counts in any other figure."""
    bootstraps: list[Row]
    traces: list[Row]
    """The first TRACES, those with the highest reward first."""
    blocks: list[Row]
    """By type."""
    scores: list[Row]
    """By bin: `score` is where it begins, STEP its width."""
    rewards: list[Row]
    """By bin: `reward` is where it begins, REWARD_STEP its width."""
    ticks: list[Row]
    """Means by number of the tick."""
    calibration: list[Row]
    """By type and tenth of the probability."""
    questions: list[Row]
    part: float
    """Seconds of a part of the time axis."""
    throughput: list[Row]
    """By part: blocks recorded, tokens sampled."""
    time: list[Row]
    """By kind of step and what it was for."""
    cost: Row
    rejections: list[Row]
    penalties: list[Row]
    errors: list[Row]
    best: list[Row]
    """Blocks with the highest scores."""
    worst: list[Row]
    conversations: list[Row]
    """Those that succeeded first, then those that did not."""
    programs: list[Row]
    """Of a search for a program: the best, then the worst."""
    program_scores: list[float]
    revisions: list[Row]
    """Of the settings, each whole: what differs from the defaults."""
    effective: Row | None
    """Every setting as of the newest revision, by this version; None: it can't read them."""
    params: list[Row]
    rubrics: list[Row]


def refresh(conn: sa.Connection, job: int) -> Iterator[str]:
    """Bring the views that a report reads up to date with a job, if they are not. Yields the name of each.

    Raises UsageError if there is no such job.
    """
    reports.jobs(conn, job)
    stale = conn.execute(
        sa.text(
            """
            select name from views where name = any(cast(:names as text[])) and as_of <= (
              select max(case status when 'running' then now() else coalesce(finished_at, created_at) end)
              from traces where job_id = :job
            ) order by position
            """
        ),
        {"job": job, "names": list(READ)},
    ).scalars()
    names = list(stale)
    conn.rollback()
    for one in views.refresh(conn, names) if names else ():
        yield one.view


def read(conn: sa.Connection, job: int, gpus: int = 1, seconds: float = 600.0, *, simulation: bool) -> Report:
    """A job's report. `gpus`: of each model server; `seconds`: that each query may take.

    `simulation`: what this installation serves to jobs that name no model is the simulation. Raises UsageError.
    """
    summary = reports.jobs(conn, job)[0]
    conn.rollback()

    def rows(query: str) -> list[Row]:
        columns, found = reports.select(conn, query.replace(":job", str(int(job))), seconds, None)
        return [dict(zip(columns, map(_number, row), strict=True)) for row in found]

    about = rows(JOB)[0]
    sums = rows("select * from yield_by_job where job_id = :job")[0] | {
        "candidates_per_block": summary.candidates_per_block
    }
    part = _round_part((sums["seconds"] or 0.0) / PARTS)
    revisions = rows(REVISIONS)
    own = {row["type"] for row in rows("select type from block_stats where job_id = :job and scored > 0")}
    judged = "action" if "action" in own else None
    return Report(
        made_at=datetime.datetime.now(datetime.UTC),
        version=__version__,
        code_sha256=code_sha256(),
        database=str(rows("show server_version")[0]["server_version"]),
        as_of=rows(f"select min(as_of) as as_of from freshness where name in {READ!r}")[0]["as_of"],
        simulated=about["model"] == SIMULATED_MODEL or (about["model"] is None and simulation),
        job=about,
        sums=sums,
        called=rows(CALLED),
        bootstraps=rows(BOOTSTRAPS),
        traces=rows(TRACE_ROWS),
        blocks=rows(BLOCKS),
        scores=rows(SCORES),
        rewards=rows(REWARDS),
        ticks=rows(TICKS),
        calibration=rows(CALIBRATION),
        questions=rows(QUESTIONS),
        part=part,
        throughput=rows(THROUGHPUT.replace(":part", f"{part:g}")),
        time=rows(TIME),
        cost=cost(sums, rows(PROMPTS)[0], gpus),
        rejections=rows(REJECTIONS),
        penalties=rows(PENALTIES),
        errors=rows(ERRORS),
        best=rows(_examples(judged, "desc")),
        worst=rows(_examples(judged, "asc")),
        conversations=rows(CONVERSATIONS),
        programs=rows(PROGRAMS),
        program_scores=[row["score"] for row in rows(PROGRAM_SCORES)],
        revisions=revisions,
        effective=effective(revisions[-1]["settings"]),
        params=rows(PARAMS),
        rubrics=rows(RUBRICS),
    )


def cost(sums: Row, prompts: Row, gpus: int) -> Row:
    """What a kept megabyte cost: docs/report.md has the formulas. None: nothing was kept, or it is not told."""
    kept = sums["kept_megabytes"] or None
    sampled, seconds, count = sums["sampled_tokens"], sums["seconds"], sums["servers"]

    def each(value: float | None) -> float | None:
        return None if kept is None or value is None else float(value) / kept

    computed = None if prompts["computed"] is None else float(sampled + prompts["computed"])
    used = None if seconds is None or not count else seconds * count
    return {
        "kept_megabytes": kept,
        "gpus_per_server": gpus,
        "sampled_tokens": each(sampled),
        "computed_tokens": each(computed),
        "told_share": prompts["told_share"],
        "cached_share": prompts["cached_share"],
        "model_seconds": each(sums["model_seconds"]),
        "server_seconds": each(used),
        "gpu_seconds": each(None if used is None else used * gpus),
    }


def _number(value: Any) -> Any:
    """PostgreSQL's decimals are read as Python's, which neither plots nor JSON take."""
    return float(value) if isinstance(value, Decimal) else value


def effective(values: Row) -> Row | None:
    """All settings, defaults included; None: another version wrote them, and this one can't read them."""
    try:
        return dict(msgspec.to_builtins(settings.settings(values)))
    except UsageError:
        return None


def _round_part(seconds: float) -> float:
    """The next length of time that people count in."""
    steps = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400)
    return float(next((step for step in steps if step >= seconds), 86400 * -(-seconds // 86400)))


def _examples(type: str | None, order: str) -> str:
    return EXAMPLE_ROWS.format(only="" if type is None else f"and b.type = '{type}'", order=order)


JOB = """
select j.id, j.name, j.agent, j.model, j.asked_model, j.seed, j.version, j.enqueued_by, j.created_at, j.state,
  j.called_by, j.paused_seconds,
  (select min(started_at) from traces where job_id = j.id) as started_at,
  (select max(finished_at) from traces where job_id = j.id) as finished_at,
  (select count(*) from traces where job_id = j.id and status in ('queued', 'running')) as open,
  (select string_agg(distinct server, ', ' order by server) from traces where job_id = j.id) as servers,
  (select count(*) from traces where job_id = j.id and fork_of is not null) as forks
from jobs j where j.id = :job
"""
CALLED = """
select y.job_id, y.job, y.agent, y.traces, y.ended, y.failed, y.blocks, y.bytes, y.sampled_tokens
from yield_by_job y join jobs j on j.id = y.job_id where j.called_by = :job order by y.job_id
"""
BOOTSTRAPS = """
select f.name as bootstrap, f.sha256, count(*) as traces, count(*) filter (where t.status = 'ended') as ended,
  count(*) filter (where t.status = 'failed') as failed, sum(t.bytes - t.shared_bytes)::bigint as bytes
from traces t join bootstraps f on f.id = t.bootstrap_id where t.job_id = :job
group by f.id, f.name, f.sha256 order by f.name
"""
TRACE_ROWS = f"""
select trace_id, number, bootstrap, trace_status, coalesce(ended_because, failure_kind) as because, failure, ticks,
  own_blocks, own_bytes, sampled_tokens, kept_share, reward, errors, loops, result, seconds
from trace_stats where job_id = :job order by reward desc nulls last, number limit {TRACES}
"""
BLOCKS = """
select type, sum(blocks)::bigint as blocks, sum(bytes)::bigint as bytes, sum(written)::bigint as written,
  sum(executed)::bigint as executed, sum(ran)::bigint as ran, sum(scored)::bigint as scored,
  sum(scored * mean_score) / nullif(sum(scored), 0) as mean_score
from block_stats where job_id = :job group by type order by bytes desc
"""
SCORES = f"""
select floor(greatest(-{FARTHEST}, least(score, {FARTHEST - STEP})) / {STEP}) * {STEP} as score,
  count(block_id) as chosen, count(*) - count(block_id) as lost
from candidate_values where job_id = :job and score is not null group by 1 order by 1
"""
REWARDS = f"""
select floor(round((tick_reward / {REWARD_STEP})::numeric, 6))::double precision * {REWARD_STEP} as reward,
  count(*) as ticks
from tick_stats where job_id = :job and tick > 0 and tick_reward is not null group by 1 order by 1
"""
TICKS = """
select tick, sum(traces)::bigint as traces, sum(traces * reward) / sum(traces) as reward,
  sum(traces * errors) / sum(traces) as errors
from learning_curves where job_id = :job group by tick order by tick
"""
CALIBRATION = """
select type, bin, sum(labels)::bigint as labels, sum(labels * predicted) / sum(labels) as predicted,
  sum(labels * observed) / sum(labels) as observed
from evaluator_calibration where job_id = :job group by type, bin order by type, bin
"""
QUESTIONS = """
select type, question, sum(labels)::bigint as labels, sum(labels * predicted) / sum(labels) as predicted,
  sum(labels * observed) / sum(labels) as observed, sum(labels * abs(predicted - observed)) / sum(labels) as error,
  sum(labels * brier) / sum(labels) as brier
from evaluator_calibration where job_id = :job group by type, question order by labels desc
"""
THROUGHPUT = """
with began as (select min(started_at) as at from traces where job_id = :job)
select part * :part as seconds, sum(blocks)::bigint as blocks, sum(tokens)::bigint as tokens
from (
  select floor(extract(epoch from b.created_at - began.at) / :part)::bigint as part, count(*) as blocks,
    0 as tokens
  from began, blocks b join traces t on t.id = b.trace_id
  where t.job_id = :job and b.index >= coalesce(t.fork_at, 0) and b.created_at >= began.at group by 1
  union all
  select floor(extract(epoch from s.finished_at - began.at) / :part)::bigint, 0, sum(c.tokens)
  from began, candidates c join traces t on t.id = c.trace_id join steps s on s.id = c.step_id
  where t.job_id = :job and s.copy_of is null and s.finished_at >= began.at group by 1
) parts
group by part order by part
"""
TIME = """
select kind, what, sum(steps)::bigint as steps, sum(retried)::bigint as retried, sum(failed)::bigint as failed,
  sum(model_seconds) as model_seconds, sum(environment_seconds) as environment_seconds,
  sum(own_seconds) as own_seconds, sum(waiting_seconds) as waiting_seconds
from step_times where job_id = :job and kind not in ('work', 'delegate', 'await')
group by kind, what order by model_seconds desc, environment_seconds desc, kind, what
"""
PROMPTS = """
select sum(p.tokens - p.cached)::bigint as computed,
  (sum(p.cached)::double precision / nullif(sum(p.tokens) filter (where p.cached is not null), 0)) as cached_share,
  avg((p.tokens is not null and p.cached is not null)::integer)::double precision as told_share
from prompts p join traces t on t.id = p.trace_id join steps s on s.id = p.step_id
where t.job_id = :job and s.kind = 'sample'
"""
REJECTIONS = """
select reason, count(*) as candidates, avg(score) as mean_score, sum(tokens)::bigint as tokens
from (
  select score, tokens,
    case
      when depth is not null then 'a node of a search tree'
      when finish_reason = 'length' then 'cut off at its most tokens'
      when not compiles then 'no legal Python'
      when penalty > 0 then 'penalised by linting'
      when score is null then 'not scored'
      else 'sound, another was chosen'
    end as reason
  from candidate_values where job_id = :job and block_id is null
) lost
group by reason order by candidates desc
"""
PENALTIES = """
select penalty, sum(penalised)::bigint as penalised, sum(penalised)::double precision / sum(linted) as share
from penalty_stats where job_id = :job group by penalty having sum(penalised) > 0 order by penalised desc, penalty
"""
ERRORS = """
select stage, type, error, sum(errors)::bigint as errors, max(block_id) as block_id
from errors_by_stage where job_id = :job group by stage, type, error
order by errors desc, stage, type, error limit 15
"""
EXAMPLE_ROWS = f"""
select b.trace_id, b.index, b.tick, b.type, b.score, b.reward, b.ran, b.exception, b.question, b.probability,
  b.answer, left(b.body, {EXCERPT}) as body, length(b.body) > {EXCERPT} as cut
from blocks b join traces t on t.id = b.trace_id
where t.job_id = :job and b.score is not null and b.index >= coalesce(t.fork_at, 0) {{only}}
order by b.score {{order}}, b.id limit {EXAMPLES}
"""
CONVERSATIONS = f"""
select trace_id, trace_status, success, messages, replies, reply_tokens, left(task, {EXCERPT}) as task,
  left(final_response, {EXCERPT}) as final_response, left(error, {EXCERPT}) as error
from (
  (select * from conversations where job_id = :job and success
    order by reply_tokens, trace_id limit {EXAMPLES})
  union all
  (select * from conversations where job_id = :job and success is not true
    order by trace_status = 'failed' desc, success nulls last, reply_tokens desc, trace_id limit {EXAMPLES})
) shown
order by success is not true, trace_id
"""
PROGRAMS = f"""
select trace_id, number, generation, score, error, left(source, {EXCERPT}) as source from (
  (select p.* from programs p join traces t on t.id = p.trace_id where t.job_id = :job and p.score is not null
    order by p.score desc, p.id limit 1)
  union all
  (select p.* from programs p join traces t on t.id = p.trace_id where t.job_id = :job
    order by p.score nulls first, p.id desc limit 1)
) shown
order by score desc nulls last
"""
PROGRAM_SCORES = """
select p.score from programs p join traces t on t.id = p.trace_id
where t.job_id = :job and p.score is not null order by p.id
"""
REVISIONS = """
select 0 as revision, created_at, settings from jobs where id = :job
union all
select revision, created_at, settings from job_settings where job_id = :job
order by revision
"""
PARAMS = """
select params::text as params, count(*) as traces from traces where job_id = :job
group by 1 order by traces desc, params limit 10
"""
RUBRICS = """
select rubric, sum(asked)::bigint as asked from question_stats where job_id = :job
group by rubric order by asked desc
"""
