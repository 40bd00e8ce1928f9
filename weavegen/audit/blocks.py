"""Checks of blocks and ticks: none is missing, each stands where it may, and the sums are right."""

from weavegen.audit.check import Check

CHECKS = (
    # ---- blocks
    Check(
        "block-indexes",
        "block indexes run from 0 without gaps, and none stands twice",
        "blocks",
        sql="""
        select trace, 'block ' || index, case
            when step = 0 then 'there is another block of this index'
            when step = index + 1 then format('the trace begins with it: %s blocks before it are missing', index)
            else format('%s blocks before it are missing', step - 1)
          end
        from (
          select b.trace_id as trace, b.index, b.index - lag(b.index, 1, -1::bigint) over w as step
          from blocks b join traces t on t.id = b.trace_id where {scope}
          window w as (partition by b.trace_id order by b.index)
        ) x where step <> 1 order by trace, index
        """,
    ),
    Check(
        "trace-counters",
        "blocks, bytes, written and ticks of a trace are what its blocks and ticks add up to",
        "traces",
        sql="""
        select t.id, 'its row', concat_ws('; ',
            case when t.blocks <> coalesce(b.n, 0)
              then format('blocks is %s, and there are %s', t.blocks, coalesce(b.n, 0)) end,
            case when t.bytes <> coalesce(b.size, 0)
              then format('bytes is %s, and its blocks have %s', t.bytes, coalesce(b.size, 0)) end,
            case when t.written <> coalesce(b.written, 0)
              then format('written is %s, and of candidates %s were made', t.written, coalesce(b.written, 0)) end,
            case when t.ticks <> coalesce(k.n, 0)
              then format('ticks is %s, and %s are finished', t.ticks, coalesce(k.n, 0)) end)
        from traces t
        left join (
          select b.trace_id, count(*) as n, sum(octet_length(b.rendered)) as size, count(b.candidate_id) as written
          from blocks b join traces t on t.id = b.trace_id where {scope} group by 1
        ) b on b.trace_id = t.id
        left join (
          select k.trace_id, count(*) as n from ticks k join traces t on t.id = k.trace_id
          where {scope} and k.number > 0 and k.finished_at is not null group by 1
        ) k on k.trace_id = t.id
        where {scope} and (t.blocks, t.bytes, t.written, t.ticks)
          <> (coalesce(b.n, 0), coalesce(b.size, 0), coalesce(b.written, 0), coalesce(k.n, 0))
        order by 1
        """,
    ),
    Check(
        "sampled-counters",
        "candidates and sampled_tokens of a trace are what its candidates add up to",
        "traces",
        sql="""
        select t.id, 'its row', format('says %s candidates and %s sampled tokens; those kept are %s with %s',
            t.candidates, t.sampled_tokens, coalesce(c.n, 0), coalesce(c.tokens, 0))
        from traces t left join (
          select c.trace_id, sum(c.tokens) as tokens,
            count(*) filter (where c.type not in ('bm25-query', 'next-type')) as n
          from candidates c join traces t on t.id = c.trace_id where {scope} group by 1
        ) c on c.trace_id = t.id
        where {scope} and (t.candidates, t.sampled_tokens) <> (coalesce(c.n, 0), coalesce(c.tokens, 0))
        order by 1
        """,
    ),
    Check(
        "successors",
        "every block may follow the one before it, by the agents' own table; a trace begins as its agent's do",
        "blocks",
        sql="""
        select trace, 'block ' || index, case
            when before is null then format('the trace begins with a block of type %s', type)
            else format('a block of type %s follows one of type %s', type, before)
          end
        from (
          select b.trace_id as trace, b.index, b.type, j.agent, lag(b.type) over w as before
          from blocks b join traces t on t.id = b.trace_id join jobs j on j.id = t.job_id where {scope}
          window w as (partition by b.trace_id order by b.index)
        ) x
        where case
          when before is not null then before || ' ' || type <> all(:legal)
          when agent = any(:conversing) then type <> 'bootstrap' and type <> all(:messages)
          else type <> 'genesis'
        end
        order by trace, index
        """,
    ),
    Check(
        "turns",
        "a tick's blocks lie together, but for the ticks of subagents, which lie between a call and its return",
        "blocks",
        sql="""
        select x.trace_id, 'block ' || x.index, format('a block of type %s of tick %s follows one of type %s of '
            || 'tick %s: no call, no return and no next tick', x.type, x.tick, x.last_type, x.last_tick)
        from (
          select b.trace_id, b.index, b.type, b.tick, lag(b.tick) over w as last_tick,
            lag(b.type) over w as last_type, lag(b.ran) over w as last_ran,
            lag(b.executed_by) over w as last_executed_by
          from blocks b join traces t on t.id = b.trace_id where {scope}
          window w as (partition by b.trace_id order by b.index)
        ) x
        left join ticks k on k.trace_id = x.trace_id and k.number = x.tick
        left join ticks p on p.trace_id = x.trace_id and p.number = x.last_tick
        where case
          -- What other agents return, who work in traces of their own, stands right behind what asked them.
          when x.last_tick = x.tick then x.type = 'return' and not exists (select from steps s
            where s.id = x.last_executed_by and jsonb_array_length(s.result -> 'delegates') > 0)
          when x.last_tick is null then x.tick <> 0
          when x.type = 'return' then p.caller is distinct from k.number or p.finished_at is null
          when x.type <> 'task-reminder' and x.type <> all(:messages) or k.number <= p.number then true
          when k.caller = p.number
            then x.last_type not in ('action', 'bootstrap', 'return') or x.last_ran is not null
          else k.caller is distinct from p.caller or k.subagent <> p.subagent or p.finished_at is null
        end
        order by 1, x.index
        """,
    ),
    # ---- ticks
    Check(
        "ticks",
        "tick numbers run from 0 without gaps; a subagent's ticks end before their caller's, within its time",
        "ticks",
        sql="""
        select x.trace_id, 'tick ' || x.number, case
            when x.step <> 1 then format('%s ticks before it are missing', x.step - 1)
            when x.caller is not null and c.id is null then format('its caller, tick %s, is missing', x.caller)
            when x.caller >= x.number then format('it was called by tick %s, which came later', x.caller)
            when x.finished_at is null and c.finished_at is not null
              then format('it is open, and tick %s, which called it, is over', x.caller)
            else format('its deadline is after that of tick %s, which called it', x.caller)
          end
        from (
          select k.*, k.number - lag(k.number, 1, -1::bigint) over w as step
          from ticks k join traces t on t.id = k.trace_id where {scope}
          window w as (partition by k.trace_id order by k.number)
        ) x left join ticks c on c.trace_id = x.trace_id and c.number = x.caller
        where x.step <> 1 or x.caller is not null and (c.id is null or x.caller >= x.number
          or x.finished_at is null and c.finished_at is not null
          -- pauses are added to deadlines
          or x.deadline - x.paused_seconds > c.deadline - c.paused_seconds + 0.001)
        order by 1, x.number
        """,
    ),
    Check(
        "tick-blocks",
        "every tick begins at its first block, and one that is over has blocks, but for some of conversations, "
        "and of calls that were started over",
        "ticks",
        sql="""
        select t.id, 'tick ' || k.number, case
            when b.first is null and k.finished_at is null
              then format('first_block is %s, and the trace ends before block %s', k.first_block, e.last + 1)
            when b.first is null then 'it is over and has no blocks'
            else format('first_block is %s, and its first block is %s', k.first_block, b.first)
          end
        from ticks k join traces t on t.id = k.trace_id join jobs j on j.id = t.job_id
        left join (
          select b.trace_id, b.tick, min(b.index) as first
          from blocks b join traces t on t.id = b.trace_id where {scope} group by 1, 2
        ) b on b.trace_id = k.trace_id and b.tick = k.number
        left join lateral (
          select coalesce(max(l.index), -1) as last, (
            select n.first_block from ticks n where n.trace_id = t.id and n.number = k.number + 1) as next
          from blocks l where l.trace_id = t.id and b.first is null
        ) e on true
        where {scope} and case
          when b.first is not null then b.first <> k.first_block
          when k.finished_at is null then k.first_block <> e.last + 1
          when j.agent = any(:conversing) then k.first_block <> coalesce(e.next, e.last + 1)
          when t.status = 'failed' then false
          else k.caller is null or not exists (
            select from ticks a where a.trace_id = k.trace_id and a.number < k.number and a.run > 0)
        end
        order by 1, k.number
        """,
    ),
    Check(
        "tick-states",
        "of agents that converse every tick after the first was told something by the one before, of others none",
        "ticks",
        sql="""
        select t.id, 'tick ' || k.number, case
            when j.agent = any(:conversing) then 'what the tick before handed on to it is lost'
            else 'it was handed something, and no tick of this agent hands anything on'
          end
        from ticks k join traces t on t.id = k.trace_id join jobs j on j.id = t.job_id
        where {scope}
          and (nullif(k.state, 'null') is null) = (k.number > 0 and j.agent = any(:conversing))
        order by 1, k.number
        """,
    ),
    Check(
        "homeless",
        "every block, step and evaluation belongs to a tick that there is",
        "ticks",
        sql="""
        select b.trace_id, 'block ' || b.index, format('its tick %s is missing', b.tick)
        from blocks b join traces t on t.id = b.trace_id
        left join ticks k on k.trace_id = b.trace_id and k.number = b.tick
        where {scope} and k.id is null
        union all
        select s.trace_id, 'step ' || s.id, case when k.id is null then format('its tick %s is missing', s.tick)
            else format('it is of run %s of its tick, which had %s', s.run, k.run + 1) end
        from steps s join traces t on t.id = s.trace_id
        left join ticks k on k.trace_id = s.trace_id and k.number = s.tick
        where {scope} and (k.id is null or s.run > k.run or s.run < 0)
        union all
        select e.trace_id, 'evaluation ' || e.id, format('it is of tick %s, its step is not', e.tick)
        from evaluations e join traces t on t.id = e.trace_id join steps s on s.id = e.step_id
        where {scope} and (s.trace_id, s.tick) <> (e.trace_id, e.tick)
        order by 1
        """,
    ),
    Check(
        "open-ticks",
        "a running trace has an open tick, and where subagents work a chain of them, each waiting for the next",
        "running traces",
        sql="""
        select t.id, coalesce('tick ' || k.number, 'its row'), case
            when k.number is null then 'the trace runs, and no tick is open'
            when k.caller is distinct from k.outer_one
              then format('it is open while tick %s is, which did not call it', k.outer_one)
            when k.inner_one is null then 'it waits for a subagent that has no tick'
            else format('tick %s is that of a subagent, and it waits for %s', k.inner_one, w.n)
          end
        from traces t left join (
          select k.trace_id, k.number, k.run, k.caller, lag(k.number) over w as outer_one,
            lead(k.number) over w as inner_one
          from ticks k join traces t on t.id = k.trace_id
          where {scope} and t.status = 'running' and k.finished_at is null
          window w as (partition by k.trace_id order by k.number)
        ) k on k.trace_id = t.id
        left join lateral (
          select count(*) as n from steps s where s.trace_id = t.id and s.tick = k.number and s.run = k.run
            and s.kind = 'work' and s.status = 'running'
        ) w on true
        where {scope} and t.status = 'running' and (k.number is null or k.caller is distinct from k.outer_one
          or w.n <> case when k.inner_one is null then 0 else 1 end)
        order by 1, k.number
        """,
    ),
)
