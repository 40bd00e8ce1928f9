"""The auditor on traces that real workers wrote: clean as they are, and each kind of damage is found by its check."""

import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support import TICTACTOE
from tests.support.bootstraps import ASKING, CALLING
from tests.support.installation import Installation, installed
from weavegen.audit.check import MAX_FINDINGS, Report, Scan, Scope
from weavegen.audit.host import look
from weavegen.audit.prove import CHECKS, audit, prove
from weavegen.config import Config
from weavegen.database import Database, Statement
from weavegen.errors import UsageError
from weavegen.sandbox.environment import Environment, remove
from weavegen.services import fleet, processes
from weavegen.store import urls
from weavegen.store.session import pooled

TASK = {
    "task": "Count the words of this: one two three",
    "messages": [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Hello. What is it?"}],
}


@dataclass
class Corpus:
    """The traces of an installation, and the installation without its workers."""

    installation: Installation
    db: Database
    reports: list[Report]
    """Reports of audits while traces ran."""
    game: int
    """A trace that ended: tic-tac-toe."""
    call: int
    """A trace that ended, with ticks of a subagent."""
    open: int
    """A trace whose workers were killed while its bootstrap's action waited for a subagent."""
    talk: int
    """A trace that ended, of a conversing agent: tic-tac-toe with evaluations."""
    task: int
    """Another such trace, whose task begins with messages."""
    asking: int
    """A trace whose bootstrap's action delegated look-ups to other traces."""
    asked: int
    """One of these other traces."""

    @property
    def config(self) -> Config:
        return self.installation.config


@pytest.fixture(scope="module")
def corpus() -> Iterator[Corpus]:
    with installed() as installation:
        config = installation.config
        db = pooled(urls.database_url(config))
        file = installation.home / "calling.py"
        file.write_text(CALLING)
        rows = installation.home / "jobs.jsonl"
        short = {"bootstrap": str(file), "params": {"long": False}, "seed": 3}
        rows.write_text("\n".join(map(json.dumps, (short, {"bootstrap": str(TICTACTOE), "seed": 3, "n": 2}))))
        endless = int(installation.json("enqueue", file, "-p", "long=true", "--seed", "3")["job"])
        small = ("--set", "window=12", "--set", "window_kept=6")  # so that retrieval can find blocks
        tried = ("--set", "action.search=execute", "--set", "action.rounds=[4,16]")  # several in each step
        installation.json("enqueue", "--from", rows, "--ticks", "3", *small, *tried)
        conversing = ("enqueue", "--agent", "react", "--seed", "3")
        tasks = installation.home / "tasks.jsonl"
        tasks.write_text(json.dumps({"task": TASK, "n": 2}))
        file = installation.home / "asking.py"
        file.write_text(ASKING)
        others = [
            int(installation.json(*arguments)["job"])
            for arguments in (
                (*conversing, TICTACTOE),
                (*conversing, "--from", tasks),
                ("enqueue", file, "--seed", "3", "--ticks", "1"),
            )
        ]
        reports: list[Report] = []
        waiting = """
            select count(*) filter (where t.status = 'running') as running, count(*) filter (where
              t.status in ('queued', 'running') and t.job_id <> :endless
              or e.id is not null and t.status <> 'running'
              or t.job_id = :endless and not exists (
                select from ticks k where k.trace_id = t.id and k.subagent = 'long' and k.number > 2)) as unready
            from traces t left join environments e on e.trace_id = t.id and e.closed_at is null
        """
        deadline = time.monotonic() + 120
        while (state := one_row(db, waiting, endless=endless)).unready or not reports:
            assert time.monotonic() < deadline, installation.logs()
            if not state.running:
                time.sleep(0.1)  # the workers have not begun
                continue
            with db.connect() as conn:
                reports.append(audit(conn, Scope(), 30, config))
        services = processes.registered(config)
        ended = [services[name] for name in (*fleet.WORKERS, fleet.BEAT)]
        processes.stop(config, ended, sig=signal.SIGKILL)
        ids = one_row(db, "select array_agg(id order by id) as all from traces").all
        talk, task, asking = (
            one_row(db, "select min(id) as id from traces where job_id = :job", job=job).id for job in others
        )
        asked = one_row(db, "select min(id) as id from traces where called_by is not null").id
        yield Corpus(
            installation, db, reports, game=ids[2], call=ids[1], open=ids[0], talk=talk, task=task,
            asking=asking, asked=asked,
        )  # fmt: skip
        db.close()


def one_row(db: Database, query: str, **values: Any) -> Any:
    with db.connect() as conn:
        return conn.execute(Statement(query), values).one()


def findings_by_check(report: Report) -> dict[str, int]:
    """Number of findings of each check, without remarks."""
    return {one.name: one.found for one in report.outcomes if one.found and not one.remark}


def test_traces_that_are_being_written_are_clean(corpus: Corpus) -> None:
    for report in corpus.reports:
        assert findings_by_check(report) == {}, [one.findings for one in report.outcomes if one.found]
        assert not report.paused


def test_the_corpus_is_clean_and_every_check_has_seen_rows(corpus: Corpus) -> None:
    with corpus.db.connect() as conn:
        report = audit(conn, Scope(), 3600, corpus.config)
    assert findings_by_check(report) == {}, [one.findings for one in report.outcomes if one.found]
    assert report.paused
    assert [one.name for one in report.outcomes] == [check.name for check in CHECKS]
    seldom = {"messages", "programs", "host-workers", "host-processes"}  # the workers' host processes ended with them
    assert {one.name for one in report.outcomes if not one.looked_at} <= seldom
    assert any(one.looked_at for seen in corpus.reports for one in seen.outcomes if one.name == "host-processes")


def test_the_audit_only_reads(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def rows(scan: Scan, *given: Any, **parameters: Any) -> Iterator[Any]:
        shown = ("show transaction_read_only", "show transaction_isolation")
        seen[:] = [scan.conn.execute(query).scalar_one() for query in shown]
        return original(scan, *given, **parameters)

    original = Scan.rows
    monkeypatch.setattr(Scan, "rows", rows)
    with corpus.db.connect() as conn:
        audit(conn, Scope(trace=corpus.game), 60)
    assert seen == ["on", "repeatable read"]


# Every kind of damage. {g}, {c}, {r}: the game, the trace with a call, and the one that still runs. {t}, {k}: the
# conversations, of a bootstrap and of a task. {a}, {b}: the trace that delegated, and one of its delegates.

ADD_UP = """
update traces t set (blocks, bytes, written) = (
  select count(*), sum(octet_length(rendered)), count(candidate_id) from blocks where trace_id = t.id)
"""
"""Repairs the sums of traces after damage that is not about the sums."""
STEP = "trace_id, tick, run, ordinal, kind, label, status, request, result, queue, claims, finished_at"
BEGIN = "(select max(id) from steps where trace_id = {g} and request ->> 'op' = 'begin')"
LOSER = """(select max(c.id) from candidates c where c.trace_id = {g} and c.type = 'orientation'
  and c.id not in (select candidate_id from blocks where candidate_id is not null))"""
BLOCK = "(select max(id) from blocks where trace_id = {g} and type = '%s')"
OBSERVATION, ORIENTATION, EXPECTATION = (BLOCK % name for name in ("observation", "orientation", "expectation"))
EVALUATION, OPTION = BLOCK % "evaluation", BLOCK % "option"
ACTION = "(select max(id) from blocks where trace_id = {g} and type = 'action' and ran)"
LINTED = "(select max(id) from steps where trace_id = {g} and kind = 'lint')"
LONG_AGO = "now() - interval '1 day'"
MESSAGE = "(select min(id) from blocks where trace_id = {t} and type = '%s')"
ASSISTANT, ANSWER = MESSAGE % "assistant", MESSAGE % "tool"
REPLY = f"trace_id = {{t}} and index = (select index from blocks where id = {ASSISTANT})"
USER = "trace_id = {t} and index = (select min(index) from blocks where trace_id = {t} and type = 'user')"
CALL = "(select max(id) from steps where trace_id = {t} and request ->> 'op' = 'call')"
OPEN_TICK = "trace_id = {r} and number = (select max(number) from ticks where trace_id = {r})"
DELEGATE = "(select called_by from traces where id = {b})"
PROGRAMS = f"""
insert into programs (trace_id, number, tick, generation, parents, source, score, signature, candidate_id)
select {{t}}, n, 1, least(n, 1), array[]::bigint[], '', 1, array[]::double precision[],
  case when n > 0 then (select candidate_id from blocks where id = {ASSISTANT}) end
from unnest(array[%s]) n
"""
"""Programs with these numbers, all but the first from one message."""
RESEARCHERS = """
insert into jobs (name, agent, seed, settings, version, called_by)
select j.name, 'research', j.seed, j.settings, j.version, j.id from jobs j join traces t on t.job_id = j.id
where t.id = {r}
"""
"""A job that the job of the running trace requested."""
ASKED = """
insert into traces (job_id, number, bootstrap_id, params, seed, status, finished_at, called_by)
select j.id, 1, t.bootstrap_id, '{{}}', 1, '%s', %s, (select max(id) from steps where kind = 'delegate')
from jobs j join traces t on t.id = {b} where j.called_by = (select job_id from traces where id = {r})
"""
"""A trace in this job, requested by the newest step of its kind."""

FAILED = "update steps set status = 'failed', result = null, failure_kind = 'environment', failure = 'it is gone'"

DAMAGE: dict[str, tuple[str, tuple[str, ...]]] = {
    "a block is lost": ("block-indexes", (f"delete from blocks where id = {OBSERVATION}", ADD_UP)),
    "a block is doubled": (
        "block-indexes",
        (
            "alter table blocks drop constraint uq_blocks_trace_id_index cascade",
            "insert into blocks (trace_id, index, tick, subagent, type, body, rendered, timestamp, "
            "time_remaining, title, compiles, tags) select trace_id, index, tick, subagent, type, body, rendered, "
            f"timestamp, time_remaining, title, compiles, tags from blocks where id = {OBSERVATION}",
            ADD_UP,
        ),
    ),
    "the bytes are wrong": ("trace-counters", ("update traces set bytes = bytes + 1 where id = {g}",)),
    "the ticks are wrong": ("trace-counters", ("update traces set ticks = ticks + 1 where id = {g}",)),
    "the tokens are wrong": (
        "sampled-counters",
        ("update traces set sampled_tokens = sampled_tokens - 1 where id = {g}",),
    ),
    "a block is of a type that may not stand there": (
        "successors",
        (
            "update blocks set type = 'observation', rendered = replace(rendered, 'type: option', "
            f"'type: observation') where id = {OPTION}",
            ADD_UP,
        ),
    ),
    "a conversation begins with the world": (
        "successors conversation-tokens",
        (
            "update blocks set type = 'outcome', rendered = replace(rendered, 'type: system', 'type: outcome') "
            "where trace_id = {k} and index = 0",
            ADD_UP,
        ),
    ),
    "a fork's first blocks are others'": ("forks", ("update traces set fork_of = {c}, fork_at = 2 where id = {g}",)),
    "a block stands in another tick": ("turns", (f"update blocks set tick = tick - 1 where id = {OBSERVATION}",)),
    "a message stands in an earlier tick": ("turns", (f"update blocks set tick = 0 where id = {ANSWER}",)),
    "what others returned stands where nobody was asked": (
        "turns executions",
        ("update steps set result = result - 'delegates' where trace_id = {a} and result ? 'delegates'",),
    ),
    "a subagent has more time than its caller": (
        "ticks",
        ("update ticks set deadline = deadline + 1e6 where trace_id = {c} and caller is not null",),
    ),
    "a tick begins elsewhere": (
        "tick-blocks",
        ("update ticks set first_block = first_block + 1 where trace_id = {g} and number = 2",),
    ),
    "a tick without blocks begins where none can": (
        "tick-blocks",
        (
            "insert into ticks (trace_id, number, subagent, deadline, state, first_block, clock, finished_at) "
            "select k.trace_id, k.number + 1, k.subagent, k.deadline, k.state, t.blocks + 1, k.clock, now() "
            "from ticks k join traces t on t.id = k.trace_id where t.id = {t} and k.number = t.ticks",
            f"insert into steps ({STEP}) select trace_id, (select ticks + 1 from traces where id = {{t}}), 0, 0, "
            f"kind, label, status, request, result, queue, claims, finished_at from steps where id = {CALL}",
            "update traces set ticks = ticks + 1 where id = {t}",
        ),
    ),
    "what a tick was told is lost": (
        "tick-states",
        ("update ticks set state = null where trace_id = {t} and number = 2",),
    ),
    "a tick was told what nobody said": (
        "tick-states",
        ("update ticks set state = '{{}}' where trace_id = {g} and number = 2",),
    ),
    "a step has no tick": (
        "homeless",
        (
            f"insert into steps ({STEP}) select trace_id, 99, 0, 0, kind, label, status, request, result, queue, "
            f"claims, finished_at from steps where id = {BEGIN}",
        ),
    ),
    "an action waits no longer for its subagent": (
        "open-ticks",
        ("delete from steps where trace_id = {r} and kind = 'work' and status = 'running'",),
    ),
    "a step is done twice": (
        "steps-once",
        (
            "alter table steps drop constraint uq_steps_trace_id_tick_run_ordinal",
            f"insert into steps ({STEP}) select {STEP} from steps where id = {BEGIN}",
        ),
    ),
    "a step is lost": ("step-ordinals", (f"delete from steps where id = {BEGIN}",)),
    "a step has no end": ("step-states", (f"update steps set finished_at = null where id = {LINTED}",)),
    "a step is void that nothing has overtaken": (
        "step-states",
        ("update steps set status = 'void' where trace_id = {r} and kind = 'work' and status = 'done'",),
    ),
    "a worker did what no worker can do": ("step-states", (f"update steps set claims = 1 where id = {DELEGATE}",)),
    "a result is lost": ("step-results", (f"update steps set result = null where id = {BEGIN}",)),
    "a result came after its tick's end": ("step-results", (f"update steps set result = '[]' where id = {LINTED}",)),
    "a step is open in a trace that is over": (
        "open-steps",
        (f"update steps set status = 'ready', result = null, finished_at = null where id = {BEGIN}",),
    ),
    "a step failed, and its trace went on": ("open-steps", (f"{FAILED} where id = {BEGIN}",)),
    "a lease ran out and nobody noticed": (
        "leases",
        (
            f"update steps set status = 'running', lease_until = {LONG_AGO}, claims = 1, worker = 'a:1', "
            f"claimed_at = {LONG_AGO} where trace_id = {{r}} and status in ('ready', 'running') "
            "and kind <> 'work'",
        ),
    ),
    "a ready step is never sent": (
        "leases",
        (
            f"update steps set status = 'ready', lease_until = null, queue = 'lint', send_after = {LONG_AGO} "
            "where trace_id = {r} and status in ('ready', 'running') and kind <> 'work'",
        ),
    ),
    "an evaluation is kept otherwise": (
        "evaluations",
        ("update evaluations set title = title || '!' where trace_id = {g} and tick = 1",),
    ),
    "a grounded label is lost": (
        "evaluations",
        ("delete from grounded_labels where id = (select max(id) from grounded_labels where trace_id = {c})",),
    ),
    "a block tells of an exception that was not": (
        "executions",
        (f"update blocks set exception = 'ValueError' where id = {ACTION}",),
    ),
    "an execution stands on no block": (
        "executed-once",
        (
            f"insert into steps ({STEP}) select trace_id, tick, run, (select max(o.ordinal) + 1 from steps o "
            "where o.trace_id = s.trace_id and o.tick = s.tick), kind, label, status, request, "
            "result - 'assertions', queue, claims, finished_at from steps s where id = "
            f"(select executed_by from blocks where id = {ACTION})",
        ),
    ),
    "an evaluation block was not executed": (
        "unexecuted executed-once",
        (
            "update blocks set executed_by = null, ran = null, rendered = replace(rendered, "
            f"E'#q: Does this block run without errors? Yes.\\n', '') where id = {EVALUATION}",
            ADD_UP,
        ),
    ),
    "the outcome of a candidate is lost": (
        "trials",
        ("delete from trials where candidate_id = (select min(candidate_id) from trials where trace_id = {g})",),
    ),
    "a candidate that failed when it was tried was preferred": (
        "trials",
        (
            "update trials set ran = candidate_id <> (select max(candidate_id) from blocks where trace_id = {g} "
            "and candidate_id in (select candidate_id from trials)) where trace_id = {g}",
        ),
    ),
    "a block names no candidate": (
        "block-candidates",
        (f"update blocks set candidate_id = null where id = {EXPECTATION}", ADD_UP),
    ),
    "a message names no candidate": (
        "block-candidates",
        (f"update blocks set candidate_id = null where id = {ASSISTANT}", ADD_UP),
    ),
    "a message that begins a conversation was given to the model to write": (
        "block-candidates",
        (
            "update blocks set block_size = 9, rendered = replace(rendered, E' seconds\\n', "
            "E' seconds\\n#block_size 9\\n') where trace_id = {k} and type = 'assistant' and tick = 0",
            ADD_UP,
        ),
    ),
    "a block was made of another's candidate": (
        "block-candidates",
        (
            "update candidates set block_index = block_index + 1 where id = "
            f"(select candidate_id from blocks where id = {EXPECTATION})",
        ),
    ),
    "a candidate is lost": (
        "candidates scores",
        (
            "update traces set candidates = candidates - 1, sampled_tokens = sampled_tokens - "
            f"(select tokens from candidates where id = {LOSER}) where id = {{g}}",
            f"delete from candidates where id = {LOSER}",
        ),
    ),
    "a verdict is lost": ("verdicts", (f"delete from penalties where candidate_id = {LOSER}",)),
    "an answer is lost": ("scores", (f"delete from scores where candidate_id = {LOSER}",)),
    "a score is wrong": ("block-scores", (f"update blocks set score = score + 1 where id = {EXPECTATION}",)),
    "what the model read is lost": (
        "prompts",
        ("delete from prompts where step_id = (select max(step_id) from prompts where trace_id = {g})",),
    ),
    "the model read blocks that there are not": (
        "prompts",
        ("update prompts set first_block = 9999 where trace_id = {g}",),
    ),
    "the model read what stands before its conversation": (
        "prompts",
        ("update prompts set first_block = 0 where trace_id = {g}",),
    ),
    "a message's tokens are lost": ("block-tokens", (f"delete from block_tokens where {USER}",)),
    "a later turn read another token than was sampled": (
        "reply-tokens",
        (f"update block_tokens set token_ids[12] = token_ids[12] + 1 where {REPLY}",),
    ),
    "a later turn read other tokens before a message": (
        "reply-tokens",
        (f"update block_tokens set token_ids[1] = token_ids[1] + 1 where {REPLY}",),
    ),
    "a message has more tokens than the model sampled": (
        "reply-tokens conversation-tokens",
        (f"update block_tokens set token_ids = token_ids || token_ids where {REPLY}",),
    ),
    "a message has a token that the model did not read": (
        "conversation-tokens",
        (f"update block_tokens set token_ids = token_ids || 7 where {USER}",),
    ),
    "a block's tokens are lost": ("block-tokens", ("delete from block_tokens where trace_id = {g} and index = 4",)),
    "what a query found is lost": (
        "retrievals",
        ("delete from retrievals where id = (select max(id) from retrievals where trace_id = {g})",),
    ),
    "a subagent is lost": ("subagents", ("delete from subagents where trace_id = {c} and name = 'brief'",)),
    "a call's end is elsewhere": (
        "calls",
        (
            "update steps set result = jsonb_set(result, '{{index}}', to_jsonb((result ->> 'index')::int - 1)) "
            "where trace_id = {c} and kind = 'work'",
        ),
    ),
    "a conversation's subagent is lost": ("subagents", ("delete from subagents where trace_id = {t}",)),
    "nobody was asked": ("delegations", ("update traces set called_by = null where id = {b}",)),
    "two were asked at once": (
        "delegations",
        (f"update traces set called_by = {DELEGATE} where called_by is not null and id <> {{b}}",),
    ),
    "something else was returned": (
        "delegations",
        ("""update traces set returned = '{{"summary": "Nothing."}}' where id = {b}""",),
    ),
    "what was returned is called a failure": (
        "delegations",
        (f"""update steps set result = result || '{{{{"error": "no"}}}}' where id = {DELEGATE}""",),
    ),
    "a job was asked for by another": (
        "delegations",
        ("update jobs set called_by = null where id = (select job_id from traces where id = {b})",),
    ),
    "a trace works on for nobody": (
        "delegation-ends",
        (
            "update steps set status = 'void', lease_until = null where trace_id = {r} "
            "and status in ('ready', 'running')",
            f"update traces set status = 'cancelled', finished_at = {LONG_AGO} where id = {{r}}",
            "update environments set closed_at = now() where trace_id = {r} and closed_at is null",
            "insert into steps (trace_id, tick, run, ordinal, kind, label, status, request, queue, ready_at) "
            "select k.trace_id, k.number, k.run, (select coalesce(max(ordinal) + 1, 0) from steps s "
            "where s.trace_id = k.trace_id and s.tick = k.number), 'delegate', '', 'void', "
            f"""'{{{{"agent": "research"}}}}', 'control', {LONG_AGO} from ticks k where {OPEN_TICK}""",
            RESEARCHERS,
            ASKED % ("queued", "null"),
        ),
    ),
    "a step waits on for a trace that is over": (
        "delegation-ends",
        (
            "insert into steps (trace_id, tick, run, ordinal, kind, label, status, request, queue) "
            "select k.trace_id, k.number, k.run, (select coalesce(max(ordinal) + 1, 0) from steps s "
            "where s.trace_id = k.trace_id and s.tick = k.number), 'delegate', '', 'running', "
            f"""'{{{{"agent": "research"}}}}', 'control' from ticks k where {OPEN_TICK}""",
            RESEARCHERS,
            ASKED % ("cancelled", LONG_AGO),
        ),
    ),
    "a program is lost": ("programs", (PROGRAMS % "0, 2",)),
    "a program came before its parent": (
        "programs",
        (PROGRAMS % "0, 1", "update programs set parents = array[1] where number = 1"),
    ),
    "a program is of another tick's message": (
        "programs",
        (PROGRAMS % "0, 1", "update programs set tick = 2 where number = 1"),
    ),
    "a trace does not say why it ended": ("trace-states", ("update traces set ended_because = null where id = {g}",)),
    "a trace failed for no reason": (
        "trace-states events",
        ("update traces set status = 'failed', ended_because = null where id = {g}",),
    ),
    "a trace runs and nothing is to be done": (
        "advancing",
        (
            "delete from steps where trace_id = {r} and status in ('ready', 'running') and kind <> 'work'",
            # The deleted step may have been its tick's first, and no run is without steps.
            f"insert into steps ({STEP}) select k.trace_id, k.number, k.run, 0, kind, label, status, request, "
            "result, queue, claims, s.finished_at from ticks k, steps s where k.trace_id = {r} and k.number = "
            f"(select max(number) from ticks where trace_id = {{r}}) and s.id = {BEGIN} "
            "on conflict (trace_id, tick, run, ordinal) do update set queue = excluded.queue",
            f"update steps set finished_at = {LONG_AGO} where trace_id = {{r}} and finished_at is not null",
            f"update traces set started_at = {LONG_AGO} where id = {{r}}",
            f"update environments set started_at = {LONG_AGO} - interval '1 day' where trace_id = {{r}}",
        ),
    ),
    "a trace started twice": ("events", ("insert into events (trace_id, kind) values ({g}, 'started')",)),
    "a trace that ended was cancelled": ("events", ("insert into events (trace_id, kind) values ({g}, 'cancelled')",)),
    "a message is lost": (
        "messages",
        (
            "insert into channels (trace_id, name, messages) values ({g}, 'test', 3)",
            "insert into messages (channel_id, number, kind, author, own, text) "
            "select id, n, 'message', 'agent', true, 'x' from channels, unnest(array[1, 3]) n where name = 'test'",
        ),
    ),
    "an environment was never closed": (
        "environments",
        (
            "update environments set closed_at = null where trace_id = {g}",
            f"update traces set started_at = {LONG_AGO}, finished_at = {LONG_AGO} where id = {{g}}",
        ),
    ),
    "an environment was never rebuilt": (
        "rebuilds",
        (
            "insert into environments (trace_id, host, pid, sandbox, steps_done, closed_at) "
            "values ({g}, 'here', 1, 'bubblewrap', 3, now())",
        ),
    ),
    "a text is not what its block renders to": (
        "rendered",
        (f"update blocks set rendered = overlay(rendered placing '!' from length(rendered) - 20) where id = {OPTION}",),
    ),
    "a text does not parse back": (
        "parsed",
        (
            "update blocks set title = E'a\\n#title b', rendered = "
            f"replace(rendered, '#title ' || title, E'#title a\\n#title b') where id = {OBSERVATION}",
            ADD_UP,
        ),
    ),
    "a block is no Python": (
        "compiled",
        (
            "update penalties set rewritten = '(' where candidate_id = "
            f"(select candidate_id from blocks where id = {EVALUATION})",
            'update steps set request = request || \'{{"source": "("}}\' where id = '
            f"(select executed_by from blocks where id = {EVALUATION})",
            # So that its score is the score of a rewritten text.
            "update scores set stage = 'raw' where candidate_id = "
            f"(select candidate_id from blocks where id = {EVALUATION})",
            f"update blocks set rendered = replace(rendered, body, '('), body = '(' where id = {EVALUATION}",
            ADD_UP,
        ),
    ),
    "a block has another owner": (
        "owners",
        (
            "update blocks set subagent = 'nobody', rendered = replace(rendered, '#subagent main', "
            f"'#subagent nobody') where id = {ORIENTATION}",
            ADD_UP,
        ),
    ),
    "a block is not its candidate's text": (
        "candidate-texts",
        (
            'update penalties set rewritten = \'"""Other."""\' where candidate_id = '
            f"(select candidate_id from blocks where id = {EXPECTATION})",
            "update scores set stage = 'raw' where candidate_id = "
            f"(select candidate_id from blocks where id = {EXPECTATION})",
        ),
    ),
    "a message is not what the model said": (
        "candidate-texts",
        (
            "update candidates set text = text || '!' where id = "
            f"(select candidate_id from blocks where id = {ASSISTANT})",
        ),
    ),
    "something else was executed": (
        "executed-sources",
        (
            'update steps set request = request || \'{{"source": "pass"}}\' where id = '
            f"(select executed_by from blocks where id = {ACTION})",
        ),
    ),
    "a label was drawn otherwise": (
        "labels",
        (
            "update blocks set answer = not answer, rendered = regexp_replace(rendered, '(Yes|No)(?=\\. \\()', "
            f"case when answer then 'No' else 'Yes' end) where id = {EXPECTATION}",
            ADD_UP,
        ),
    ),
    "a message has a label": (
        "labels",
        (
            "update blocks set question = 'Is it?', answer = true, probability = 0.9, rendered = "
            f"replace(rendered, '#endblock', E'#q: Is it? Yes. (90%)\n#endblock') where id = {ANSWER}",
            ADD_UP,
        ),
    ),
    "a conversation was rewarded": (
        "tick-rewards block-rewards",
        (
            "update ticks set reward = 0.5 where trace_id = {t} and number = 1",
            f"update blocks set reward = 0.5 where id = {ASSISTANT}",
        ),
    ),
    "a tick has another reward": (
        "tick-rewards",
        ("update ticks set reward = reward + 0.1 where trace_id = {g} and number = 1",),
    ),
    "an evaluation came out otherwise": (
        "evaluations tick-rewards block-rewards",
        ("update evaluations set value = to_jsonb(value <> 'true'), error = null where trace_id = {g} and tick = 2",),
    ),
    "a block has another part of the reward": (
        "block-rewards",
        (f"update blocks set reward = 0.123 where id = {ORIENTATION}",),
    ),
    "a block has another preference": (
        "block-rewards",
        (f"update blocks set preference = 0.5 where id = {ORIENTATION}",),
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_found_by_its_check(corpus: Corpus, damage: str) -> None:
    checks, statements = DAMAGE[damage]
    with corpus.db.connect() as conn:
        for statement in statements:
            text = statement.format(
                g=corpus.game, c=corpus.call, r=corpus.open, t=corpus.talk, k=corpus.task, a=corpus.asking,
                b=corpus.asked,
            )  # fmt: skip
            assert conn.execute(Statement(text)).rowcount != 0, text
        report = prove(conn, Scope(), 3600, None)
        conn.rollback()
    assert set(findings_by_check(report)) == set(checks.split()), [one.findings for one in report.outcomes if one.found]


def test_a_tick_of_a_conversation_may_have_no_blocks(corpus: Corpus) -> None:
    """For example a tick of the toolsmith in which a stage only looks something up."""
    tick, step, counted = DAMAGE["a tick without blocks begins where none can"][1]
    with corpus.db.connect() as conn:
        for statement in (tick.replace("t.blocks + 1", "t.blocks"), step, counted):
            conn.execute(Statement(statement.format(t=corpus.talk)))
        report = prove(conn, Scope(), 3600, None)
        conn.rollback()
    assert findings_by_check(report) == {}, [one.findings for one in report.outcomes if one.found]


def test_a_researcher_goes_on_after_a_look_up_that_failed(corpus: Corpus) -> None:
    with corpus.db.connect() as conn:
        statement = f"{FAILED} where id = (select max(id) from steps where trace_id = :trace and kind = 'consult')"
        assert conn.execute(Statement(statement), {"trace": corpus.asked}).rowcount == 1
        report = prove(conn, Scope(), 3600, None)
        conn.rollback()
    assert findings_by_check(report) == {}, [one.findings for one in report.outcomes if one.found]


def test_a_block_may_have_no_score(corpus: Corpus) -> None:
    """The evaluator may give neither yes nor no any probability."""
    candidate = f"candidate_id = (select candidate_id from blocks where id = {EXPECTATION})"
    with corpus.db.connect() as conn:
        for statement in (
            f"update scores set yes = 0, no = 0, score = null where {candidate}",
            f"update blocks set score = null where id = {EXPECTATION}",
        ):
            assert conn.execute(Statement(statement.format(g=corpus.game))).rowcount > 0
        report = prove(conn, Scope(), 3600, None)
        conn.rollback()
    assert "block-scores" not in findings_by_check(report)


def test_every_check_of_the_database_has_a_damage_case() -> None:
    planted = {name for checks, _ in DAMAGE.values() for name in checks.split()}
    assert planted == {check.name for check in CHECKS if check.subject != "host" and not check.remark}


OTHERWISE = """
    update trials set value = '"other"' where ran and candidate_id = (
      select min(b.candidate_id) from blocks b join trials r using (candidate_id)
      where b.type = 'action' and b.ran and r.ran and b.trace_id = r.trace_id)
"""
"""An action returned something else when it was tried."""


def test_remarks_are_not_damage(corpus: Corpus) -> None:
    with corpus.db.connect() as conn:
        detail = "3 steps done again: steps 7 came out otherwise"
        conn.execute_each(
            Statement("insert into events (trace_id, kind, detail) values (:trace, :kind, :detail)"),
            [
                {"trace": corpus.game, "kind": "not isolated", "detail": "by the user's wish"},
                {"trace": corpus.game, "kind": "environment rebuilt", "detail": detail},
            ],
        )
        conn.execute(Statement(OTHERWISE))
        report = prove(conn, Scope(), 3600, None)
        conn.rollback()
    assert report.damage == 0
    remarks = {one.name: one.findings for one in report.outcomes if one.found}
    assert set(remarks) == {"isolation", "rebuilt", "diverged"}
    assert remarks["rebuilt"][0].problem == detail
    [finding] = remarks["diverged"]
    assert 'returned "other" when it was tried, and returned ' in finding.problem


def test_a_step_for_a_host_that_is_gone_is_a_remark(corpus: Corpus) -> None:
    """The sweeper does not send it again until a worker of that host reports."""
    with corpus.db.connect() as conn:
        [statement] = DAMAGE["a ready step is never sent"][1]
        conn.execute(Statement(statement.format(r=corpus.open).replace("'lint'", "'execute.gone'")))
        report = prove(conn, Scope(), 3600, None)
        conn.rollback()
    assert report.damage == 0
    [silent] = [one for one in report.outcomes if one.name == "silent-hosts"]
    assert silent.found in (1, 2)  # lint and score run in parallel
    assert silent.findings[0].problem.endswith("no worker of the host gone reports")


def test_only_the_first_findings_are_kept_and_all_are_counted(corpus: Corpus) -> None:
    with corpus.db.connect() as conn:
        conn.execute(Statement("update blocks set rendered = 'x'"))
        report = prove(conn, Scope(), 3600, None)
        conn.rollback()
    [rendered] = [one for one in report.outcomes if one.name == "rendered"]
    assert rendered.found == rendered.looked_at > len(rendered.findings) == MAX_FINDINGS


def test_waiting_steps_are_damage_only_if_workers_could_take_them(corpus: Corpus) -> None:
    with corpus.db.connect() as conn:
        for statement in DAMAGE["a lease ran out and nobody noticed"][1]:
            conn.execute(Statement(statement.format(r=corpus.open)))
        host = look(corpus.config)
        assert host.paused
        report = prove(conn, Scope(), 3600, host)
        conn.rollback()
    assert report.damage == 0
    [leases] = [one for one in report.outcomes if one.name == "leases"]
    assert leases.found in (1, 2)  # lint and score run in parallel


def test_leftovers_on_this_host_are_found(corpus: Corpus) -> None:
    config, unknown = corpus.config, 99_999
    Environment.start(config, unknown)
    left = config.workspaces / str(corpus.game)
    left.mkdir()
    log = config.logs / f"environment-{corpus.call}.log"
    log.touch()
    try:
        with corpus.db.connect() as conn:
            finished = "update traces set started_at = {0}, finished_at = {0} where status = 'ended'"
            conn.execute(Statement(finished.format(LONG_AGO)))
            # A process of this host that died while it held a lease for a day.
            dead = f"{os.uname().nodename}:999999999"
            conn.execute(
                Statement(
                    "update steps set status = 'running', claims = 1, worker = :dead, claimed_at = now(), "
                    "lease_until = now() + interval '1 day' "
                    "where trace_id = :r and status in ('ready', 'running') and kind <> 'work'"
                ),
                {"dead": dead, "r": corpus.open},
            )
            report = prove(conn, Scope(), 60, look(config))
            narrow = prove(conn, Scope(trace=corpus.call), 60, look(config))
            conn.rollback()
    finally:
        remove(config, unknown)
        shutil.rmtree(left)
        log.unlink()
    by_check = {one.name: one.findings for one in report.outcomes}
    assert {finding.trace for finding in by_check["host-processes"]} == {unknown}
    assert {finding.problem for finding in by_check["host-processes"]} == {"it runs, but there is no such trace"}
    files = {finding.place: finding.problem for finding in by_check["host-files"]}
    assert files[str(left)] == files[str(log)] == "its trace is ended"
    assert {os.path.basename(path) for path in files} == {
        f"env-{unknown}.json", f"env-{unknown}.sock", str(unknown), left.name, log.name
    }  # fmt: skip
    assert dead in by_check["host-workers"][0].problem
    places = [finding.place for one in narrow.outcomes if one.name == "host-files" for finding in one.findings]
    assert places == [str(log)]
    with corpus.db.connect() as conn:
        assert findings_by_check(audit(conn, Scope(), 3600, config)) == {}


def test_the_command(corpus: Corpus) -> None:
    installation = corpus.installation
    clean = installation.cli("audit", "--grace", "3600", "--json")
    assert clean.returncode == 0, clean.stderr
    report = json.loads(clean.stdout)
    assert (report["damage"], report["paused"]) == (0, True)
    assert [check["name"] for check in report["checks"]] == [check.name for check in CHECKS]
    short = installation.cli("audit", "--grace", "3600", "--trace", str(corpus.game)).stdout.splitlines()
    assert short[-1] == "no damage, 0 remarks"
    assert short[-2].startswith(f"checks: {len(CHECKS)}; traces: 1; ticks: ")
    assert short[-2].endswith("; this host")
    assert len(short) == 3, short
    bytes_are = "update traces set bytes = bytes + :n where id = :g"
    with corpus.db.begin() as conn:
        conn.execute(Statement(bytes_are), {"n": 1, "g": corpus.game})
    try:
        damaged = installation.cli("audit", "--all", "--no-host", "--grace", "3600", "--trace", str(corpus.game))
    finally:
        with corpus.db.begin() as conn:
            conn.execute(Statement(bytes_are), {"n": -1, "g": corpus.game})
    assert damaged.returncode == 1, damaged.stderr
    assert "damage: trace-counters" in damaged.stdout
    assert f"trace {corpus.game}, its row: bytes is" in damaged.stdout
    listed = {line.split()[0] for line in damaged.stdout.split("\n\n")[0].splitlines()[1:]}
    assert listed == {check.name for check in CHECKS if check.subject != "host"}


def test_wrong_use_gives_a_one_line_error(corpus: Corpus) -> None:
    done = corpus.installation.cli("audit", "--job", "1", "--trace", "1")
    assert (done.returncode, done.stderr) == (2, "weavegen: give --job or --trace, not both\n")
    with corpus.db.connect() as conn:
        with pytest.raises(UsageError, match="there is no trace 4242"):
            audit(conn, Scope(trace=4242), 60)
        with pytest.raises(UsageError, match="there is no job 4242"):
            audit(conn, Scope(job=4242), 60)
