"""Checks of steps and executions: each was done once, is kept as it came out, and is open only where it may be."""

from weavegen.audit.check import Check

CHECKS = (
    # ---- steps
    Check(
        "steps-once",
        "no step of a tick's run stands twice in the journal",
        "steps",
        sql="""
        select s.trace_id, format('tick %s, run %s, step %s', s.tick, s.run, s.ordinal),
          format('it stands %s times, %s of them done', count(*), count(*) filter (where s.status = 'done'))
        from steps s join traces t on t.id = s.trace_id where {scope}
        group by s.trace_id, s.tick, s.run, s.ordinal having count(*) > 1 order by 1
        """,
    ),
    Check(
        "step-ordinals",
        "a run's steps are numbered from 0 without gaps, and every run of a tick has steps, but for a "
        "conversation's first, and the end of a trace that failed",
        "steps",
        sql="""
        select trace_id, 'step ' || id, format('%s steps before it are missing', step - 1)
        from (
          select s.trace_id, s.id, s.copy_of, s.ordinal - lag(s.ordinal, 1, -1::bigint) over w as step
          from steps s join traces t on t.id = s.trace_id where {scope}
          window w as (partition by s.trace_id, s.tick, s.run order by s.ordinal)
        ) x where step > 1 and copy_of is null  -- of finished ticks a fork has only what was executed
        union all
        select t.id, 'tick ' || k.number, format('run %s has no steps', r.run)
        from ticks k join traces t on t.id = k.trace_id join jobs j on j.id = t.job_id
        cross join lateral generate_series(0, k.run) as r(run)
        where {scope} and not exists (
            select from steps s where s.trace_id = k.trace_id and s.tick = k.number and s.run = r.run)
          and not (k.number = 0 and j.agent = any(:conversing))
          and not (t.status = 'failed' and k.finished_at is null and r.run = k.run)
          and not (t.fork_of is not null and coalesce(k.finished_at < t.started_at, false))
        order by 1
        """,
    ),
    Check(
        "step-states",
        "a step's columns fit its status: who has it, since when, how it ended",
        "steps",
        sql="""
        select s.trace_id, 'step ' || s.id, format('it is %s, and %s', s.status, case
            when s.status in ('done', 'failed') and s.finished_at is null then 'has no end'
            when s.status in ('done', 'failed') and s.lease_until is not null then 'has a lease'
            when s.status = 'done' and s.failure is not null then 'says why it failed'
            when s.status = 'failed' and s.failure is null then 'does not say why'
            when s.status <> 'done' and s.result is not null then 'has a result'
            when s.status not in ('done', 'failed') and s.finished_at is not null then 'has an end'
            when s.kind = any(:waits) and s.status in ('ready', 'failed') or s.kind = any(:waits)
              and (s.claims > 0 or s.lease_until is not null) then 'no worker can do a step of this kind'
            when s.status = 'void' then 'nothing has overtaken it'
            when s.lease_until is null and s.status = 'running' then 'has no lease: nobody may take it'
            else 'nobody ever took it'
          end)
        from steps s join traces t on t.id = s.trace_id
        left join ticks k on k.trace_id = s.trace_id and k.number = s.tick
        where {scope} and case s.status
          when 'done' then s.finished_at is null or s.lease_until is not null or s.failure is not null
            or (s.kind = any(:waits)) <> (s.claims < 1)
          when 'failed' then s.finished_at is null or s.lease_until is not null or s.failure is null
            or s.failure_kind is null or s.result is not null or s.claims < 1 or s.kind = any(:waits)
          when 'running' then s.result is not null or s.finished_at is not null
            or case when s.kind = any(:waits) then s.lease_until is not null or s.claims > 0
              else s.lease_until is null or s.claims < 1 or s.worker is null or s.claimed_at is null end
          when 'ready' then s.result is not null or s.finished_at is not null or s.kind = any(:waits)
          else s.result is not null or s.finished_at is not null or t.status = 'running' and s.run >= k.run
        end
        order by 1, s.id
        """,
    ),
    Check(
        "step-results",
        "a step that is done has a result; those of a finished tick's samples, lints and scores are emptied",
        "steps",
        sql="""
        select s.trace_id, 'step ' || s.id, case when s.result is null
            then format('this %s is done, and its result is lost', s.kind)
            else format('this %s has a result, and its tick is over', s.kind) end
        from steps s join traces t on t.id = s.trace_id
        left join ticks k on k.trace_id = s.trace_id and k.number = s.tick
        where {scope} and s.status = 'done' and (s.result is null)
          <> (s.kind in ('sample', 'lint', 'score') and k.finished_at is not null)
        order by 1, s.id
        """,
    ),
    Check(
        "open-steps",
        "open steps are those of a running trace's open ticks, in their newest run; a finished tick has none",
        "steps",
        sql="""
        select s.trace_id, 'step ' || s.id, case
            when t.status <> 'running' then format('it is %s, and its trace is %s', s.status, t.status)
            when k.finished_at is not null then format('it is %s, and its tick is over', s.status)
            when s.run < k.run then format('it is %s, and its tick was started over', s.status)
            else format('it is %s, and its tick waits for that of a subagent', s.status)
          end
        from steps s join traces t on t.id = s.trace_id
        left join ticks k on k.trace_id = s.trace_id and k.number = s.tick
        where {scope} and (
          s.status in ('ready', 'running') and (t.status <> 'running' or k.finished_at is not null
            or s.run < k.run or s.kind <> all(:waits) and exists (
              select from ticks i where i.trace_id = t.id and i.number > k.number and i.finished_at is null))
          or s.run = k.run and k.finished_at is not null
            and (s.status = 'void' or s.status = 'failed' and t.status not in ('failed', 'cancelled')))
        order by 1, s.id
        """,
    ),
    Check(
        "leases",
        "but for paused jobs, nothing is held beyond its lease, and nothing waits that nobody was sent",
        "open steps",
        waits=True,
        sql="""
        select s.trace_id, 'step ' || s.id, case s.status
            when 'running' then format('its lease ran out %s s ago, and nobody took it from %s',
              round(extract(epoch from now() - s.lease_until)), coalesce(s.worker, 'its worker'))
            else format('it is ready, and should have been sent again %s s ago',
              round(extract(epoch from now() - s.send_after)))
          end
        from steps s join traces t on t.id = s.trace_id join jobs j on j.id = t.job_id
        where {scope} and t.status = 'running' and j.state <> 'paused'
          and s.kind <> all(:waits) and (
          s.status = 'running' and s.lease_until < now() - make_interval(secs => :grace)
          or s.status = 'ready' and s.send_after < now() - make_interval(secs => :grace))
        order by 1, s.id
        """,
    ),
    Check(
        "evaluations",
        "the evaluations and grounded labels that are kept are those that the steps brought",
        "executions",
        sql="""
        select s.trace_id, 'step ' || s.id, case
            when e.n <> e.expected then format('it brought %s evaluations, and %s are kept', e.expected, e.n)
            when l.n <> l.expected then format('it brought %s grounded labels, and %s are kept', l.expected, l.n)
            when e.other > 0 then format('%s of its evaluations are kept otherwise than they came out', e.other)
            else format('%s of its grounded labels are kept otherwise than they came out', l.other)
          end
        from steps s join traces t on t.id = s.trace_id
        cross join lateral (
          select count(*) as n, coalesce(jsonb_array_length(s.result -> 'evaluations'), 0) as expected,
            count(*) filter (where e.title is distinct from r.one ->> 'title'
              or e.scope is distinct from r.one ->> 'scope'
              or e.value is distinct from nullif(r.one -> 'value', 'null')
              or (e.error is null) <> (r.one ->> 'error' is null)) as other
          from evaluations e
          cross join lateral (select s.result -> 'evaluations' -> e.position::int as one) r
          where e.step_id = s.id
        ) e
        cross join lateral (
          select count(*) as n, coalesce(jsonb_array_length(s.result -> 'assertions'), 0) as expected,
            count(*) filter (where l.question is distinct from r.one ->> 'question'
              or l.answer is distinct from (r.one ->> 'answer')::boolean) as other
          from grounded_labels l
          cross join lateral (select s.result -> 'assertions' -> l.position::int as one) r
          where l.step_id = s.id
        ) l
        where {scope} and s.kind = 'execute'
          and (e.n <> e.expected or l.n <> l.expected or e.other > 0 or l.other > 0)
        order by 1, s.id
        """,
    ),
    # ---- executions
    Check(
        "executions",
        "a block says that it ran, or why not, exactly as the step did that executed it",
        "blocks",
        sql="""
        select trace, 'block ' || index, problem from (
          select b.trace_id as trace, b.index, case
            when b.executed_by is null and (b.ran is not null or b.exception is not null)
              then 'it says how it ran, and no step executed it'
            when b.executed_by is null then null
            when s.id is null then format('it was executed by step %s, which is missing', b.executed_by)
            when (s.trace_id, s.tick) <> (b.trace_id, b.tick) or s.run is distinct from k.run
              then format('it was executed by step %s, which is of another tick', s.id)
            when s.kind <> 'execute' or s.status <> 'done'
              then format('it was executed by step %s, a step of kind %s that is %s', s.id, s.kind, s.status)
            when case s.request ->> 'op' when 'bootstrap' then b.type <> 'bootstrap'
                when 'resume' then b.type <> 'return' when 'run' then b.type <> s.request ->> 'type' else true end
              then format('it was executed by step %s, which was there for something else', s.id)
            when not b.compiles then format('it is no legal Python, and step %s executed it', s.id)
            when w.waits and (b.ran is not null or b.exception is not null)
              then format('it says how it ran, and step %s only waits for others', s.id)
            when not w.waits and b.ran is distinct from (s.result ->> 'error' is null)
              then format('it says that it %s, and step %s says the opposite',
                case when b.ran then 'ran' when b.ran is null then 'was not executed' else 'failed' end, s.id)
            when b.exception is distinct from s.result -> 'error' ->> 'type'
              then format('it says that it ended with %s, and step %s says %s', coalesce(b.exception, 'nothing'),
                s.id, coalesce(s.result -> 'error' ->> 'type', 'nothing'))
          end as problem
          from blocks b join traces t on t.id = b.trace_id
          left join ticks k on k.trace_id = b.trace_id and k.number = b.tick
          left join steps s on s.id = b.executed_by
          cross join lateral (select s.result ->> 'waits_for' is not null
            or coalesce(jsonb_array_length(s.result -> 'delegates'), 0) > 0 as waits) w
          where {scope}
        ) x where problem is not null order by trace, index
        """,
    ),
    Check(
        "executed-once",
        "every execution stands on one block, and on no second one",
        "executions",
        sql="""
        with {live}
        select s.trace_id, 'step ' || s.id,
          format('what it executed, %s, stands on %s blocks',
            coalesce(s.request ->> 'type', s.request ->> 'op'), b.n)
        from live k join steps s on s.trace_id = k.trace_id and s.tick = k.number and s.run = k.run
        join traces t on t.id = s.trace_id
        cross join lateral (select count(*) as n from blocks b where b.executed_by = s.id) b
        where s.kind = 'execute' and s.status = 'done' and s.request ->> 'op' in ('bootstrap', 'run', 'resume')
          and b.n <> 1 and not (b.n = 0 and t.status = 'failed' and not exists (
            select from steps l where l.trace_id = s.trace_id and l.tick = s.tick and l.run = s.run
              and l.ordinal > s.ordinal))
        order by 1, s.id
        """,
    ),
    Check(
        "unexecuted",
        "what should have been executed was: legal actions that were not taken back, evaluations, ...",
        "blocks",
        sql="""
        select b.trace_id, 'block ' || b.index, format('this %s was never executed', b.type)
        from (
          select b.*, lead(b.type) over (partition by b.trace_id, b.tick order by b.index) as next
          from blocks b join traces t on t.id = b.trace_id where {scope}
        ) b
        join traces t on t.id = b.trace_id join jobs j on j.id = t.job_id
        join ticks k on k.trace_id = b.trace_id and k.number = b.tick
        where b.executed_by is null and b.compiles and (b.type in ('bootstrap', 'return')
          or b.type in ('action', 'observation-inference', 'evaluation')
            and not (j.agent = 'planning' and b.tick > 0) and b.next is distinct from 'backtrack'
            and (b.next is not null or k.finished_at is not null and t.status <> 'failed'))
        order by 1, b.index
        """,
    ),
)
