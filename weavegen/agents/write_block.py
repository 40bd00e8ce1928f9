"""Writes one block, by the cascade of sampling rounds or by tree search (tree_search.py)."""

import random
from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec

from weavegen.agents.program import Part, Tick
from weavegen.agents.sampling import BlockRequest, ScoredCandidate, drawn, sample, try_best
from weavegen.agents.tree_search import tree_search
from weavegen.kernel import prompts
from weavegen.kernel.context import window
from weavegen.kernel.replay import record
from weavegen.kernel.selection import furthest, mean_score, probability
from weavegen.kernel.steps import Append, Candidate, Prompt, Retrieve, Score
from weavegen.trace.blocks import FULL_BLOCK, IMAGINED, PROSE, BlockType
from weavegen.trace.query import parse, restricted
from weavegen.trace.render import normalise_body, one_line, render_header

PREFIX = {
    **dict.fromkeys(PROSE, '"""'),
    BlockType.ACTION: "def action_",
    BlockType.EVALUATION: "def eval_",
    **dict.fromkeys(IMAGINED, "# "),
}
"""Fixed beginning of a body."""

RETRIEVES = frozenset({BlockType.ORIENTATION, BlockType.ACTION, BlockType.BACKTRACK})
"""Types whose prompt has retrieved blocks, from the second round on or in the tree search."""


def write_block(
    t: Tick,
    type: BlockType,
    *,
    after_debug: bool = False,
    hint: str = "",
    questions: Sequence[str] = (),
    tries: bool = False,
    **header: Any,
) -> Part[tuple[Append, str]]:
    """Search for a good candidate, cut it to its legal structure, and score the result.

    `hint`: added to the instruction. `questions`: asked instead of those of the type. `tries`: whether
    candidates may be tried. `header`: more header fields.

    Returns the block and, if it does not compile, the text of the error block after it. The block is not recorded
    yet, because an executed block is recorded with its result. Its score has no penalties subtracted, except 2 if
    it does not compile.
    """
    s = t.settings.of(type)
    asked = tuple(questions) or prompts.questions(type)[: None if s.all_questions else 1]
    draw = random.Random(t.seed("wording"))
    request = BlockRequest(
        type=type,
        settings=s,
        max_tokens=max(1, s.max_tokens * t.block_size // FULL_BLOCK),
        questions=tuple(draw.choice(prompts.wordings(question)[: s.wordings]) for question in asked),
        hint=hint,
        after_debug=after_debug,
        tries=tries and s.search.endswith("execute"),
    )
    draft = Append(type=type, body="", began=t.cursor.now, block_size=request.max_tokens, **header)
    draft, prompt, chosen = yield from search(t, request, draft)
    verdict, answers = chosen.verdict, chosen.answers
    body = normalise_body(type, verdict.rewritten)  # so that what is executed and scored is what is recorded
    if verdict.compiles and body != chosen.candidate.text.strip("\n"):
        [answers] = yield Score(prompt=prompt, questions=request.questions, texts=(body,), candidate=chosen.position)
    score = mean_score(answers)
    if score is not None and not verdict.compiles:
        score -= 2.0
    block = msgspec.structs.replace(
        draft,
        body=body,
        compiles=verdict.compiles,
        question=asked[0],
        yes=probability(answers[0]),
        candidate=chosen.position,
        score=score,
        tried=chosen.ran,
    )
    return block, "" if verdict.compiles else error_text(chosen)


Search: TypeAlias = tuple[Append, Prompt, ScoredCandidate]
"""The result of a search: the draft with its query, the last prompt, the chosen candidate."""


def search(t: Tick, request: BlockRequest, draft: Append) -> Part[Search]:
    """Sample growing rounds, or one round and then a tree, until a candidate is good enough. Draw by softmax(score).

    The draw is from the last round, unless an earlier one got further when its candidates were tried.
    """
    s, prompt = request.settings, open_prompt(t, draft, request.hint)
    is_tree, orients = s.search.startswith("tree"), request.type is BlockType.ORIENTATION
    rounds = [(number, n) for number, n in enumerate((s.tree_first,) if is_tree else s.rounds) if n]
    if orients and (is_tree or (rounds[1:] and not s.show_draft)):
        rounds = rounds[1:]  # an orientation always retrieves, so its first round could not end the search
    candidates: list[ScoredCandidate] = []
    found: list[Search] = []
    for number, n in rounds:
        if number == 1 and request.type in RETRIEVES:
            draft, prompt = yield from retrieve(t, draft, prompt)
        if number and s.show_draft:
            best = max(furthest(candidates), key=lambda one: one.score)
            prompt = msgspec.structs.replace(prompt, draft=best.verdict.rewritten)
        candidates = yield from sample(t, request, prompt, n, number)
        candidates = yield from try_best(t, request, candidates)
        found.append((draft, prompt, drawn(t, candidates)))
        may_end = number > 0 or not orients
        if may_end and good_enough(candidates, s.tree_accept if is_tree else s.accept, t.subagent):
            break
    else:
        if is_tree:
            if request.type in RETRIEVES:
                draft, prompt = yield from retrieve(t, draft, prompt)
            found.append((draft, prompt, (yield from tree_search(t, request, prompt))))
    return max(reversed(found), key=lambda one: one[2].achieved if one[2].ran else 0.0)


def good_enough(candidates: Sequence[ScoredCandidate], threshold: float, subagent: str = "main") -> bool:
    """Whether the best of a round is good enough to end the search. If some were tried: whether one succeeded."""
    if any(candidate.ran is not None for candidate in candidates):
        return any(candidate.succeeded(subagent) for candidate in candidates)
    best = max(candidates, key=lambda candidate: candidate.score)
    return best.verdict.compiles and best.score >= threshold


def retrieve(t: Tick, draft: Append, prompt: Prompt) -> Part[tuple[Append, Prompt]]:
    """Have the model write a BM25 query; put the hits into the prompt and the query into the header.

    The first sample that parses is the query. One is sampled first, and the others only if it does not parse. If none
    parses, nothing is retrieved.
    """
    s = t.settings.of(draft.type)
    query_prompt = msgspec.structs.replace(prompt, query=True, header=prompt.header + "#bm25_query ", prefix="")
    query: str | None = None
    for n in (1, s.query_samples - 1):
        if query is None and n:
            samples: list[Candidate] = yield t.sample(query_prompt, s, "query", n, round=1, max_tokens=s.query_tokens)
            query = next((text for sample in samples if parse(text := one_line(sample.text))), None)
    if query is None:
        return draft, prompt
    if t.cursor.index < s.same_type_until:
        query = restricted(query, draft.type)
    hits = yield Retrieve(
        query=query,
        before=prompt.window[0],
        top_k_hits=s.top_k_hits,
        least_score=s.least_score,
        limit=s.hits_in_prompt,
        memory=s.memory,
        memory_scope=s.memory_scope,
    )
    draft = msgspec.structs.replace(draft, bm25_query=query)
    return draft, msgspec.structs.replace(prompt, header=header(t, draft), recalled=tuple(hits))


def open_prompt(t: Tick, draft: Append, hint: str = "") -> Prompt:
    """The prompt for the block that `draft` begins, with the header that the block will have."""
    prefix = PREFIX.get(draft.type, "")
    if stems := prompts.stems(draft.type):
        prefix += random.Random(t.seed("stem")).choice(stems)
    place = window(t.cursor.index, t.settings)
    return Prompt(type=draft.type, window=place, header=header(t, draft), prefix=prefix, hint=hint)


def header(t: Tick, draft: Append) -> str:
    """The header lines that the block will have."""
    return render_header(record(msgspec.structs.replace(draft, body=""), t.cursor))


def error_text(chosen: ScoredCandidate) -> str:
    """The text of the error block after a block that does not compile."""
    if chosen.candidate.finish_reason == "length":
        return f"The block ran over its {chosen.tokens} tokens and was cut off before its end. Write a shorter one."
    return f"The block is not legal Python and was not used. {chosen.verdict.error}"
