"""Checks of what was asked of the model: every candidate, verdict, answer, prompt and query is kept."""

from weavegen.audit.check import Check

CHECKS = (
    Check(
        "block-candidates",
        "every block that the model wrote names its candidate: one of its tick, for its index and type, and once; "
        "of a fork's shared blocks they stay with the other trace",
        "blocks",
        sql="""
        select trace, 'block ' || index, problem from (
          select b.trace_id as trace, b.index, case
            when b.index < t.fork_at and b.candidate_id is null then null
            when b.index < t.fork_at then 'it is shared, and names a candidate'
            -- A conversation may begin with messages of the model's that it did not write.
            when b.candidate_id is null and (b.block_size is not null
              or b.type = any(:written) and (b.type <> 'assistant' or b.tick > 0))
              then 'the model wrote it, and its candidate is not named'
            when b.candidate_id is null then null
            when c.id is null then format('its candidate %s is missing', b.candidate_id)
            when b.block_size is null or not (b.type = any(:writable))
              then format('the model does not write it, and it names candidate %s', c.id)
            when (c.trace_id, s.tick) <> (b.trace_id, b.tick) or s.run is distinct from k.run
              then format('its candidate %s is of another tick', c.id)
            when c.block_index <> b.index or c.type <> b.type
              then format('its candidate %s was sampled for block %s, %s', c.id, c.block_index, c.type)
            when p.compiles <> b.compiles then format('it says that it %s, and linting found the opposite',
              case when b.compiles then 'compiles' else 'does not compile' end)
            when count(*) over (partition by b.candidate_id) > 1
              then format('another block was made of candidate %s, too', c.id)
          end as problem
          from blocks b join traces t on t.id = b.trace_id
          left join ticks k on k.trace_id = b.trace_id and k.number = b.tick
          left join candidates c on c.id = b.candidate_id
          left join steps s on s.id = c.step_id
          left join penalties p on p.candidate_id = c.id
          where {scope}
        ) x where problem is not null order by trace, index
        """,
    ),
    Check(
        "candidates",
        "a sample that is done has all the candidates it asked for, another has none; a tree's go on from parents",
        "samples",
        sql="""
        with {sampled}
        select s.trace_id, 'step ' || s.id, format('this %s is %s and asked for %s candidates; %s are kept, the '
            || 'last in position %s', s.kind, s.status, coalesce(s.request ->> 'n', '0'), coalesce(c.n, 0), c.last)
        from steps s join traces t on t.id = s.trace_id
        left join sampled c on c.step_id = s.id and c.trace_id = s.trace_id
        where {scope} and s.copy_of is null and (s.kind = 'sample' or c.n is not null) and (
          c.last <> c.n - 1 or coalesce(c.n, 0)
          <> case when s.kind = 'sample' and s.status = 'done' then (s.request ->> 'n')::int else 0 end)
        union all
        select c.trace_id, 'candidate ' || c.id, format('it does not go on from its parent, candidate %s', p.id)
        from candidates c join traces t on t.id = c.trace_id join candidates p on p.id = c.parent_id
        where {scope} and (p.trace_id <> c.trace_id or p.depth is distinct from c.depth - 1
          or not starts_with(c.text, p.text))
        order by 1
        """,
    ),
    Check(
        "verdicts",
        "linting found something out about every candidate of a lint that is done, and about no other",
        "samples",
        sql="""
        with {sampled}, lints as materialized (
          select l.trace_id, l.tick, l.run, l.status, (l.request ->> 'sample')::bigint as ordinal
          from steps l join traces t on t.id = l.trace_id where {scope} and l.kind = 'lint'
        )
        select s.trace_id, 'step ' || s.id, format('of its %s candidates %s are linted, and its lint is %s',
            c.n, c.linted, coalesce(l.status, 'missing'))
        from steps s join traces t on t.id = s.trace_id
        join sampled c on c.step_id = s.id and c.trace_id = s.trace_id
        left join lints l
          on (l.trace_id, l.tick, l.run, l.ordinal) = (s.trace_id, s.tick, s.run, s.ordinal)
        where {scope} and s.kind = 'sample' and c.linted <> case when l.status = 'done' then c.n else 0 end
        order by 1, s.id
        """,
    ),
    Check(
        "scores",
        "a scoring that is done has an answer to each question about each text, and another none",
        "scorings",
        sql="""
        select s.trace_id, 'step ' || s.id, format('it is %s and put %s questions; %s answers are kept, %s of '
            || 'them about its candidates', s.status, s.expected, coalesce(a.n, 0), coalesce(a.own, 0))
        from (
          select s.id, s.trace_id, s.status, f.id as sample_id, case
            when s.kind <> 'score' or s.status <> 'done' or s.copy_of is not null then 0
            else jsonb_array_length(s.request -> 'questions') * case when s.request ->> 'sample' is null
              then jsonb_array_length(s.request -> 'texts') else (f.request ->> 'n')::int end
          end as expected
          from steps s join traces t on t.id = s.trace_id
          left join steps f on f.trace_id = s.trace_id and f.tick = s.tick and f.run = s.run and f.kind = 'sample'
            and f.ordinal = coalesce(s.request ->> 'sample', s.request -> 'candidate' ->> 0)::bigint
          where {scope} and s.kind = 'score'
        ) s left join (
          select a.step_id, a.trace_id, c.step_id as sample_id, count(*) as n, count(a.candidate_id) as own
          from scores a join traces t on t.id = a.trace_id left join candidates c on c.id = a.candidate_id
          where {scope} group by 1, 2, 3
        ) a on a.step_id = s.id and a.trace_id = s.trace_id and a.sample_id is not distinct from s.sample_id
        where s.expected is distinct from coalesce(a.n, 0)
          or coalesce(a.own, 0) <> case when s.sample_id is null then 0 else s.expected end
        union all
        select a.trace_id, 'score ' || a.id, format('its step %s put no questions', s.id)
        from scores a join traces t on t.id = a.trace_id join steps s on s.id = a.step_id
        where {scope} and (s.kind <> 'score' or s.trace_id <> a.trace_id)
        order by 1
        """,
    ),
    Check(
        "block-scores",
        "a block's score is the mean of the answers about its text, less 2 where it does not compile",
        "blocks",
        sql="""
        select b.trace_id, 'block ' || b.index, case
            when a.raw = 0 and p.compiles and coalesce(p.rewritten, c.text) <> trim(both E'\\n' from c.text)
              then 'it was rewritten, and its new text was never scored'
            else format('its score is %s, and the answers say %s', coalesce(b.score::text, 'missing'), a.mean)
          end
        from blocks b join traces t on t.id = b.trace_id
        join candidates c on c.id = b.candidate_id join penalties p on p.candidate_id = c.id
        cross join lateral (
          select count(*) filter (where a.stage = 'raw') as raw, coalesce(
            case when bool_or(a.stage = 'raw') then avg(a.score) filter (where a.stage = 'raw')
              else avg(a.score) filter (where a.stage = 'selection') end, 0)
            - case when p.compiles then 0 else 2 end as mean
          from scores a where a.candidate_id = c.id
        ) a
        where {scope} and (b.score is null or abs(b.score - a.mean) > 1e-6
          or a.raw = 0 and p.compiles and coalesce(p.rewritten, c.text) <> trim(both E'\\n' from c.text))
        order by 1, b.index
        """,
    ),
    Check(
        "prompts",
        "of every sample and scoring that is done it is kept what the model read: blocks that there are",
        "steps",
        sql="""
        with {live}
        select s.trace_id, 'step ' || s.id, case
            when p.step_id is null then format('this %s is done, and what the model read is lost', s.kind)
            when s.kind not in ('sample', 'score') or s.status <> 'done'
              then format('this %s is %s, and what the model read in it is kept', s.kind, s.status)
            when p.trace_id <> s.trace_id then format('what it read is kept for trace %s', p.trace_id)
            else format('it read blocks %s to %s of %s', p.first_block,
              (s.request #>> '{prompt,window,1}')::bigint - 1, t.blocks)
          end
        from steps s join traces t on t.id = s.trace_id
        left join prompts p on p.step_id = s.id
        left join live k on k.trace_id = s.trace_id and k.number = s.tick and k.run = s.run
        where {scope} and case
          when p.step_id is null
            then s.status = 'done' and s.kind in ('sample', 'score') and s.copy_of is null
          else s.status <> 'done' or s.kind not in ('sample', 'score') or p.trace_id <> s.trace_id
            or k.id is not null and (p.first_block < (s.request #>> '{prompt,window,0}')::bigint
              or p.first_block > (s.request #>> '{prompt,window,1}')::bigint
              or (s.request #>> '{prompt,window,1}')::bigint > greatest(t.blocks, 2))
        end
        order by 1, s.id
        """,
    ),
    Check(
        "block-tokens",
        "of every block that the model read as tokens these are kept, and of no block that there is not; of a "
        "conversation it read the messages alone",
        "blocks",
        sql="""
        with {live}, read as (
          select p.trace_id, (s.request #>> '{prompt,window,1}')::bigint as until,
            min((s.request #>> '{prompt,window,0}')::bigint) as first
          from prompts p join traces t on t.id = p.trace_id join steps s on s.id = p.step_id
          join live k on k.trace_id = s.trace_id and k.number = s.tick and k.run = s.run
          where {scope} and p.token_ids is not null and s.request #>> '{prompt,type}' <> 'assistant' group by 1, 2
        ), spoken as (  -- one row a conversation: a trace may have several, one inside the other
          select p.trace_id, (s.request #>> '{prompt,window,0}')::bigint as first,
            max((s.request #>> '{prompt,window,1}')::bigint) as until
          from prompts p join traces t on t.id = p.trace_id join steps s on s.id = p.step_id
          join live k on k.trace_id = s.trace_id and k.number = s.tick and k.run = s.run
          where {scope} and p.token_ids is not null and s.request #>> '{prompt,type}' = 'assistant' group by 1, 2
        ), part as (  -- a window never goes back: what the next longer one leaves out, no later one reads
          select *, lag(until, 1, 0::bigint) over (partition by trace_id order by until) as since from read
        )
        select b.trace_id, 'block ' || b.index, 'the model read it, and its tokens are lost'
        from part join blocks b on b.trace_id = part.trace_id and b.index >= part.since and b.index < part.until
        left join block_tokens o on o.trace_id = b.trace_id and o.index = b.index
        where (b.index >= part.first or b.index < :pinned) and o.trace_id is null
        union
        select b.trace_id, 'block ' || b.index, 'the model read it, and its tokens are lost'
        from spoken join blocks b on b.trace_id = spoken.trace_id and b.index >= spoken.first
          and b.index < spoken.until and b.type = any(:messages)
        left join block_tokens o on o.trace_id = b.trace_id and o.index = b.index where o.trace_id is null
        union
        select o.trace_id, 'block ' || o.index, 'its tokens are kept, and the block is missing'
        from block_tokens o join traces t on t.id = o.trace_id
        left join blocks b on b.trace_id = o.trace_id and b.index = o.index
        where {scope} and b.id is null
        order by 1
        """,
    ),
    Check(
        "reply-tokens",
        "of a message that the model wrote later turns read the very tokens that it sampled",
        "replies",
        sql="""
        select b.trace_id, 'block ' || b.index, case
            when o.token_ids[1:x.opening] <> p.token_ids
              then 'its tokens do not begin with those that stand before each message of the model'
            when x.same > x.sampled
              then format('of its %s tokens the model sampled %s', x.kept, x.sampled)
            else 'its tokens are not those that the model sampled'
          end
        from blocks b join traces t on t.id = b.trace_id join jobs j on j.id = t.job_id
        join candidates c on c.id = b.candidate_id join prompts p on p.step_id = c.step_id
        join block_tokens o on o.trace_id = b.trace_id and o.index = b.index
        cross join lateral (
          -- The sampled ones up to what ended the message; behind them what closes it, and the rest of a token.
          select l.*, greatest(0, l.sampled - :tail, l.kept - l.opening - l.closing - 8) as same from (
            select cardinality(p.token_ids) as opening, cardinality(c.token_ids) as sampled,
              cardinality(o.token_ids) as kept,
              coalesce(length(j.settings ->> 'message_close'), :close) as closing
          ) l
        ) x
        where {scope} and b.type = 'assistant' and (o.token_ids[1:x.opening] <> p.token_ids or x.same > x.sampled
          or o.token_ids[x.opening + 1:x.opening + x.same] <> c.token_ids[1:x.same])
        order by 1, b.index
        """,
    ),
    Check(
        "conversation-tokens",
        "a conversation took as many of the model's tokens as its messages have",
        "replies",
        sql="""
        with {live}, upto as (  -- the tokens of all messages of a trace up to a block
          select b.trace_id, b.index, sum(cardinality(o.token_ids)) over w as tokens,
            count(*) filter (where b.type = any(:messages) and o.trace_id is null) over w as unknown
          from blocks b join traces t on t.id = b.trace_id
          left join block_tokens o on o.trace_id = b.trace_id and o.index = b.index and b.type = any(:messages)
          where {scope} window w as (partition by b.trace_id order by b.index)
        ), read as (
          select s.trace_id, s.id, p.tokens, cardinality(p.token_ids) as opening,
            (s.request #>> '{prompt,window,0}')::bigint as first,
            (s.request #>> '{prompt,window,1}')::bigint as until
          from prompts p join traces t on t.id = p.trace_id join steps s on s.id = p.step_id
          join live k on k.trace_id = s.trace_id and k.number = s.tick and k.run = s.run
          where {scope} and p.token_ids is not null and s.request #>> '{prompt,type}' = 'assistant'
        ), begun as (select distinct trace_id, first from read), around as (
          select r.id, count(*) as others from read r
          join begun g on g.trace_id = r.trace_id and g.first > r.first and g.first < r.until group by 1
        )
        select r.trace_id, 'step ' || r.id, format('the model read %s tokens, and the messages have %s',
            r.tokens, m.tokens + r.opening)
        from read r join upto l on l.trace_id = r.trace_id and l.index = r.until - 1
        left join upto f on f.trace_id = r.trace_id and f.index = r.first - 1
        cross join lateral (select l.tokens - coalesce(f.tokens, 0) as tokens) m
        left join around a on a.id = r.id
        where l.unknown = coalesce(f.unknown, 0)
          -- Where another conversation begins inside it, the model's BOS may stand there.
          and abs(r.tokens - r.opening - m.tokens) > coalesce(a.others, 0)
        order by 1, r.id
        """,
    ),
    Check(
        "retrievals",
        "of every query it is kept what it found: blocks that had left the window, examples, others' if asked",
        "retrievals",
        sql="""
        with {live}
        select s.trace_id, 'step ' || s.id, case
            when (r.id is null) = (s.status = 'done')
              then format('this query is %s, and what it found is %s', s.status,
                case when r.id is null then 'lost' else 'kept' end)
            when h.wrong > 0 then format('it found %s blocks that it could not see', h.wrong)
            else format('it put %s texts into the prompt, and %s are kept', jsonb_array_length(s.result), h.used)
          end
        from steps s join traces t on t.id = s.trace_id
        left join retrievals r on r.step_id = s.id
        left join live k on k.trace_id = s.trace_id and k.number = s.tick and k.run = s.run
        cross join lateral (
          select count(*) filter (where h.used) as used, count(*) filter (
            where h.block_id is not null and case
              when b.trace_id = s.trace_id then b.index >= r.before
              -- Of others, what the query asked for; without a memory it has none to ask for.
              else (b.score >= (s.request ->> 'memory')::double precision and b.compiles and b.ran is not false
                and (s.request ->> 'memory_scope' = 'all' or o.job_id = t.job_id)) is not true
            end) as wrong
          from retrieval_hits h left join blocks b on b.id = h.block_id left join traces o on o.id = b.trace_id
          where h.retrieval_id = r.id
        ) h
        where {scope} and s.kind = 'retrieve' and s.copy_of is null and (
          (r.id is null) = (s.status = 'done') or k.id is not null
          and (h.wrong > 0 or h.used > coalesce(jsonb_array_length(s.result), 0)
            -- Another trace's block, and with it the hit, goes where its tick is started over.
            or h.used < coalesce(jsonb_array_length(s.result), 0) and s.request ->> 'memory' is null))
        order by 1, s.id
        """,
    ),
)
