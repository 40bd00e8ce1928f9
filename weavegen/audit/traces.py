"""Checks of whole traces: their state and history, subagents and calls, messages, environments."""

from weavegen.audit.check import Check

CHECKS = (
    # ---- subagents
    Check(
        "subagents",
        "whoever has a tick is on the problem map, and so is its parent; calls of single functions show no map",
        "subagents",
        sql="""
        select t.id, 'tick ' || k.number, format('its subagent %s is not on the problem map', k.subagent)
        from ticks k join traces t on t.id = k.trace_id
        left join subagents a on a.trace_id = k.trace_id and a.name = k.subagent
        where {scope} and t.status <> 'failed' and a.id is null and exists (
          select from steps s where s.trace_id = t.id and s.tick = k.number and s.run = k.run
            and s.kind = 'execute' and s.status = 'done' and s.request ->> 'op' not in ('call', 'trial'))
        union all
        select t.id, 'subagent ' || a.name, format('its parent %s is missing', a.parent)
        from subagents a join traces t on t.id = a.trace_id
        left join subagents p on p.trace_id = a.trace_id and p.name = a.parent
        where {scope} and a.parent is not null and p.id is null
        order by 1
        """,
    ),
    Check(
        "calls",
        "a call that is over had ticks of its subagent, and its return stands right behind them",
        "calls",
        sql="""
        with {live}
        select s.trace_id, 'step ' || s.id, case
            when not exists (select from ticks i where i.trace_id = s.trace_id and i.caller = s.tick
              and i.subagent = s.request ->> 'subagent')
              then format('it called %s, which had no tick', s.request ->> 'subagent')
            when l.id is null or l.type <> s.result ->> 'last_type'
              then format('before block %s it saw one of type %s, and there is %s', s.result ->> 'index',
                s.result ->> 'last_type', coalesce('one of type ' || l.type, 'none'))
            else format('the return of %s should be block %s, which is of type %s, tick %s',
              s.request ->> 'subagent', b.index, b.type, b.tick)
          end
        from live k join steps s on s.trace_id = k.trace_id and s.tick = k.number and s.run = k.run
        left join blocks b on b.trace_id = s.trace_id and b.index = (s.result ->> 'index')::bigint
        left join blocks l on l.trace_id = s.trace_id and l.index = (s.result ->> 'index')::bigint - 1
        where s.kind = 'work' and s.status in ('running', 'done') and (
          not exists (select from ticks i where i.trace_id = s.trace_id and i.caller = s.tick
            and i.subagent = s.request ->> 'subagent')
          or s.status = 'done' and (l.id is null or l.type <> s.result ->> 'last_type'
            or b.type <> 'return' or b.tick <> s.tick))
        order by 1, s.id
        """,
    ),
    # ---- other agents
    Check(
        "delegations",
        "what another agent was asked for has its one trace, in a job that the caller's asked for, and brought "
        "what that trace returned",
        "delegations",
        sql="""
        select s.trace_id, 'step ' || s.id, case
            when c.n <> 1 then format('it is %s, and has %s traces of the agent %s', s.status, c.n,
              s.request ->> 'agent')
            when d.status not in ('ended', 'failed', 'cancelled')
              then format('it is done, and trace %s, which it asked for, is %s', d.id, d.status)
            when (s.result ->> 'trace')::bigint is distinct from d.id
              then format('it brought what trace %s returned, and asked for trace %s', s.result ->> 'trace', d.id)
            else format('it brought something else than what trace %s returned', d.id)
          end
        from steps s join traces t on t.id = s.trace_id
        cross join lateral (select count(*) as n, max(c.id) as id from traces c where c.called_by = s.id) c
        left join traces d on d.id = c.id
        where {scope} and s.kind = 'delegate' and s.copy_of is null and (c.n <> 1 or s.status = 'done' and (
          d.status not in ('ended', 'failed', 'cancelled') or (s.result ->> 'trace')::bigint is distinct from d.id
          or nullif(s.result -> 'returned', 'null') is distinct from nullif(d.returned, 'null')
          or (s.result ->> 'error' is null) <> (d.status = 'ended' and d.ended_because = 'returned')
          or d.status = 'failed' and s.result ->> 'error' <> d.failure))
        union all
        select t.id, 'its row', case
            when s.kind <> 'delegate' then format('step %s, which is said to have asked for it, is of kind %s',
              s.id, s.kind)
            when j.agent <> s.request ->> 'agent' then format('it is of the agent %s, and step %s asked for %s',
              j.agent, s.id, s.request ->> 'agent')
            else format('step %s asked for it, and its job is not one that job %s asked for', s.id, o.job_id)
          end
        from traces t join jobs j on j.id = t.job_id join steps s on s.id = t.called_by
        join traces o on o.id = s.trace_id
        where {scope} and (s.kind <> 'delegate' or j.agent is distinct from s.request ->> 'agent'
          or j.called_by is distinct from o.job_id)
        order by 1
        """,
    ),
    Check(
        "delegation-ends",
        "no trace works on for a step that no longer waits, and no step waits on for a trace that is over",
        "delegations",
        waits=True,
        sql="""
        select t.id, 'its row', format('it is %s, and step %s of trace %s, which asked for it, is %s', t.status,
            s.id, o.id, s.status)
        from traces t join steps s on s.id = t.called_by join traces o on o.id = s.trace_id
        where {scope} and t.status in ('queued', 'running') and s.status not in ('running', 'done')
          and greatest(s.ready_at, o.finished_at, (
            select max(e.at) from events e where e.trace_id = o.id and e.kind = 'tick restarted'
          )) < now() - make_interval(secs => :grace)
        union all
        select t.id, 'step ' || s.id, format('it waits for trace %s, which has been over for %s s', d.id,
            round(extract(epoch from now() - d.finished_at)))
        from steps s join traces t on t.id = s.trace_id join traces d on d.called_by = s.id
        where {scope} and s.kind = 'delegate' and s.status = 'running'
          and d.status in ('ended', 'failed', 'cancelled')
          and d.finished_at < now() - make_interval(secs => :grace)
        order by 1
        """,
    ),
    Check(
        "programs",
        "the programs that a search tried are numbered from 0, each of a message of its tick and earlier parents",
        "programs",
        sql="""
        select p.trace_id, 'program ' || p.number, case
            when p.step <> 1 then format('%s programs before it are missing', p.step - 1)
            when (p.candidate_id is null) <> (p.generation = 0)
              then format('it is of generation %s, and its message %s', p.generation,
                case when p.candidate_id is null then 'is not named' else 'is' end)
            when (c.trace_id, s.tick) <> (p.trace_id, p.tick)
              then format('its message, candidate %s, is of another tick', c.id)
            when p.number <= any(p.parents) then 'a parent of it came later'
            else 'it has both a score and a reason for none, or neither'
          end
        from (
          select p.*, p.number - lag(p.number, 1, -1::bigint) over w as step
          from programs p join traces t on t.id = p.trace_id where {scope}
          window w as (partition by p.trace_id order by p.number)
        ) p
        left join candidates c on c.id = p.candidate_id left join steps s on s.id = c.step_id
        where p.step <> 1 or (p.candidate_id is null) <> (p.generation = 0)
          or (c.trace_id, s.tick) <> (p.trace_id, p.tick) or p.number <= any(p.parents)
          or (p.score is null) = (p.error is null)
        order by 1, p.number
        """,
    ),
    # ---- traces
    Check(
        "forks",
        "a fork's shared blocks are those of the other trace, unless that has started a tick over since",
        "blocks",
        sql="""
        select t.id, 'block ' || b.index, case
            when o.id is null then format('trace %s has no such block', t.fork_of)
            else format('it is another one in trace %s', t.fork_of)
          end
        from traces t join blocks b on b.trace_id = t.id and b.index < t.fork_at
        left join blocks o on o.trace_id = t.fork_of and o.index = b.index
        where {scope} and t.fork_of is not null and (o.id is null
            or (o.rendered, o.tick, o.created_at) <> (b.rendered, b.tick, b.created_at))
          and not exists (select from events e where e.trace_id = t.fork_of
            and e.kind = 'tick restarted' and e.at > t.started_at)
        order by 1, b.index
        """,
    ),
    Check(
        "trace-states",
        "a trace ended, failed with a reason, was cancelled, waits, or runs; its columns fit that",
        "traces",
        sql="""
        select t.id, 'its row', format('it is %s, and %s', t.status, case
            when t.status = 'queued' then 'something has begun'
            when (t.finished_at is null) <> (t.status = 'running') then 'its end is '
              || case when t.finished_at is null then 'missing' else 'set' end
            when t.status <> 'cancelled' and t.started_at is null then 'it never started'
            when t.status = 'ended' and t.ended_because is null then 'does not say why'
            when t.status = 'failed' and (t.failure is null or t.failure_kind is null) then 'does not say why'
            when t.status <> 'ended' and t.ended_because is not null then 'says why it ended'
            else 'says why it failed'
          end)
        from traces t
        where {scope} and case t.status
          when 'queued' then t.started_at is not null or t.finished_at is not null or t.failure is not null
            or t.ended_because is not null or exists (select from ticks k where k.trace_id = t.id)
            or exists (select from steps s where s.trace_id = t.id)
            or exists (select from blocks b where b.trace_id = t.id)
          when 'running' then t.started_at is null or t.finished_at is not null or t.failure is not null
            or t.ended_because is not null
          when 'ended' then t.started_at is null or t.finished_at is null
            or t.ended_because is null or t.failure is not null or t.failure_kind is not null
          when 'failed' then t.started_at is null or t.finished_at is null
            or t.failure is null or t.failure_kind is null or t.ended_because is not null
          else t.finished_at is null or t.ended_because is not null or t.failure is not null
        end
        order by 1
        """,
    ),
    Check(
        "advancing",
        "a running trace has a step that is ready or at work, or waits for a trace or a person",
        "running traces",
        sql="""
        select t.id, 'its row', format('it runs, and for %s s has had no open step',
            round(extract(epoch from now() - s.last)))
        from traces t cross join lateral (
          select greatest(max(s.finished_at), t.started_at) as last from steps s where s.trace_id = t.id
        ) s
        where {scope} and t.status = 'running' and s.last < now() - make_interval(secs => :grace) and not exists (
          select from steps o where o.trace_id = t.id and o.status in ('ready', 'running') and o.kind <> 'work')
        order by 1
        """,
    ),
    Check(
        "events",
        "a trace's history has its start, its end and each tick that was started over, once",
        "events",
        sql="""
        select t.id, 'its history', format('of a trace that is %s it tells of %s starts, %s ends, %s failures, '
            || 'and %s restarts of %s', t.status, e.started, e.ended, e.failed, e.restarted, k.runs)
        from traces t left join lateral (
          select count(*) filter (where e.kind = 'started') as started,
            count(*) filter (where e.kind = 'ended') as ended, count(*) filter (where e.kind = 'failed') as failed,
            count(*) filter (where e.kind = 'tick restarted') as restarted
          from events e where e.trace_id = t.id
        ) e on true left join lateral (
          select count(*) as n, coalesce(sum(k.run), 0) as runs from ticks k where k.trace_id = t.id
        ) k on true
        where {scope} and (e.started, e.ended, e.failed, e.restarted) <> ((k.n > 0)::int,
          (t.status = 'ended')::int, (t.status = 'failed')::int, k.runs)
        order by 1
        """,
    ),
    Check(
        "messages",
        "a channel's messages are numbered from 1 without gaps, as many as it counts",
        "channels",
        sql="""
        select c.trace_id, 'channel ' || c.name, format('it counts %s messages; there are %s, numbered %s to %s',
            c.messages, m.n, m.first, m.last)
        from channels c join traces t on t.id = c.trace_id cross join lateral (
          select count(distinct m.number) as n, coalesce(min(m.number), 1) as first,
            coalesce(max(m.number), 0) as last
          from messages m where m.channel_id = c.id
        ) m
        where {scope} and (m.n, m.first, m.last) <> (c.messages, 1::bigint, c.messages)
        order by 1
        """,
    ),
    Check(
        "environments",
        "no environment is open of a trace that is over, or has not begun",
        "environments",
        waits=True,
        sql="""
        select t.id, 'environment ' || e.id, format('it is open on %s, and its trace is %s', e.host, t.status)
        from environments e join traces t on t.id = e.trace_id
        where {scope} and e.closed_at is null and t.status <> 'running'
          and coalesce(t.finished_at < now() - make_interval(secs => :grace), true)
        order by 1
        """,
    ),
    Check(
        "rebuilds",
        "an environment that was started after steps had been done did them again before any other",
        "environments",
        sql="""
        select e.trace_id, 'environment ' || e.id, format('it was started after %s steps had been done, and there '
            || 'is no word of its doing them again', e.done)
        from (
          select e.id, e.trace_id, s.done, row_number() over (partition by e.trace_id order by e.id) as number
          from environments e join traces t on t.id = e.trace_id
          cross join lateral (
            select count(*) as done from steps s where s.trace_id = e.trace_id and s.kind = 'execute'
              and s.status = 'done' and s.finished_at < e.started_at
          ) s
          where {scope} and s.done > 0
        ) e
        where e.number > (
          select count(*) from events v where v.trace_id = e.trace_id and v.kind = 'environment rebuilt')
        order by 1, e.id
        """,
    ),
)

REMARKS = (
    Check(
        "rebuilt",
        "environments that were rebuilt, and in which steps came out otherwise than before",
        "events",
        remark=True,
        sql="""
        select t.id, 'event ' || e.id, e.detail from events e join traces t on t.id = e.trace_id
        where {scope} and e.kind = 'environment rebuilt' and e.detail like '%came out otherwise%'
        order by 1, e.id
        """,
    ),
    Check(
        "isolation",
        "traces whose code ran without isolation (WEAVEGEN_SANDBOX=none)",
        "events",
        remark=True,
        sql="""
        select t.id, 'event ' || e.id, 'not isolated: ' || e.detail
        from events e join traces t on t.id = e.trace_id
        where {scope} and e.kind = 'not isolated' order by 1, e.id
        """,
    ),
)
"""No damage, but worth knowing."""
