"""Writing one block: by the cascade of sampling rounds (WEAVE section 4), or by tree search (tree_search.py)."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from weavegen.agents.program import Part, Tick
from weavegen.agents.sampling import BlockRequest, ScoredCandidate, sample
from weavegen.agents.tree_search import tree_search
from weavegen.kernel import prompts
from weavegen.kernel.context import window
from weavegen.kernel.replay import record
from weavegen.kernel.selection import accepts, draw, mean_score
from weavegen.kernel.steps import Append, Candidate, Prompt, Retrieve, Sample, Score, YesNo
from weavegen.trace.blocks import FULL_BLOCK, IMAGINED, BlockType
from weavegen.trace.query import parse, restricted
from weavegen.trace.render import one_line, render_header

PREFIX = {
    BlockType.ORIENTATION: '"""',
    BlockType.EXPECTATION: '"""',
    BlockType.DEBUG: '"""',
    BlockType.BACKTRACK: '"""',
    BlockType.ACTION: "def action_",
    BlockType.EVALUATION: "def eval_",
    **dict.fromkeys(IMAGINED, "# "),
}
"""How a body begins, whatever the model thinks."""

RETRIEVES = frozenset({BlockType.ORIENTATION, BlockType.ACTION, BlockType.BACKTRACK})
"""Blocks that see retrieved blocks, from the second round on, or in the tree search."""


@dataclass(frozen=True)
class Written:
    """What was chosen. Not recorded yet: what is executed is recorded with how it went."""

    append: Append
    compiles: bool
    error: str
    """Why it can't be used, where it does not compile."""
    score: float
    """Raw score, log odds: after rewriting, without penalties; less 2 where it does not compile."""


def write_block(
    t: Tick,
    type: BlockType,
    *,
    tick_start: int | None = None,
    directory: str | None = None,
    title: str | None = None,
    after_debug: bool = False,
) -> Part[Written]:
    """Search for a good candidate, cut it to its legal structure, and score that."""
    s = t.settings.of(type)
    wanted = BlockRequest(
        type=type,
        s=s,
        tokens=max(1, s.max_tokens * t.block_size // FULL_BLOCK),
        questions=prompts.questions(type)[: None if s.all_questions else 1],
        after_debug=after_debug,
    )
    draft = Append(
        type=type,
        body="",
        began=t.cursor.now,
        block_size=wanted.tokens,
        title=title,
        tick_start=tick_start,
        working_directory=directory,
    )
    draft, prompt, chosen = yield from (by_tree if s.search == "tree" else cascade)(t, wanted, draft)
    verdict, answers = chosen.verdict, chosen.answers
    if verdict.compiles and verdict.rewritten != chosen.candidate.text.strip("\n"):
        [answers] = yield Score(
            prompt=prompt, questions=wanted.questions, texts=(verdict.rewritten,), candidate=chosen.at
        )
    score = (mean_score(answers) or 0.0) - (0.0 if verdict.compiles else 2.0)
    return Written(
        append=msgspec.structs.replace(
            draft,
            body=verdict.rewritten,
            compiles=verdict.compiles,
            question=wanted.questions[0],
            yes=probability(answers[0]),
            candidate=chosen.at,
            score=score,
        ),
        compiles=verdict.compiles,
        error=complaint(chosen),
        score=score,
    )


Found: TypeAlias = tuple[Append, Prompt, ScoredCandidate]
"""The draft with its query, the prompt that was gone on from, the candidate chosen."""


def cascade(t: Tick, wanted: BlockRequest, draft: Append) -> Part[Found]:
    """Growing rounds until one is good enough; a candidate of the last one, drawn by softmax(score)."""
    prompt = open_prompt(t, draft)
    for number, n in enumerate(wanted.s.rounds):
        if number == 1 and wanted.type in RETRIEVES:
            draft, prompt = yield from recall(t, draft, prompt)
        found: list[ScoredCandidate] = yield from sample(t, wanted, prompt, n, number)
        may_end = number > 0 or wanted.type is not BlockType.ORIENTATION
        if may_end and good_enough(found, wanted.s.accept):
            break
    return draft, prompt, drawn(t, found)


def by_tree(t: Tick, wanted: BlockRequest, draft: Append) -> Part[Found]:
    """One round; where that brings nothing good, and always for an orientation, a tree of half-written blocks."""
    prompt = open_prompt(t, draft)
    if wanted.s.tree_first and wanted.type is not BlockType.ORIENTATION:
        found: list[ScoredCandidate] = yield from sample(t, wanted, prompt, wanted.s.tree_first, 0)
        if good_enough(found, wanted.s.tree_accept):
            return draft, prompt, drawn(t, found)
    if wanted.type in RETRIEVES:
        draft, prompt = yield from recall(t, draft, prompt)
    return draft, prompt, (yield from tree_search(t, wanted, prompt))


def good_enough(found: Sequence[ScoredCandidate], threshold: float) -> bool:
    """Whether a round's best candidate ends the search."""
    return accepts([one.score for one in found], [one.verdict for one in found], threshold)


def drawn(t: Tick, found: Sequence[ScoredCandidate]) -> ScoredCandidate:
    """One of a round's candidates."""
    return found[draw([one.score for one in found], t.seed("draw"))]


def recall(t: Tick, draft: Append, prompt: Prompt) -> Part[tuple[Append, Prompt]]:
    """Have the model write a BM25 query, and put what it finds into the prompt and the query into the header.

    The first of several samples that parses is taken; where none does, nothing is retrieved.
    """
    s = t.settings.of(draft.type)
    asking = msgspec.structs.replace(prompt, query=True, header=prompt.header + "#bm25_query ", prefix="")
    samples: list[Candidate] = yield Sample(
        prompt=asking,
        n=s.query_samples,
        round=1,
        max_tokens=s.query_tokens,
        temperature=s.temperature,
        top_k=s.top_k,
        repetition_penalty=s.repetition_penalty,
        seed=t.seed("query"),
    )
    query = next((text for one in samples if parse(text := one_line(one.text))), None)
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


def open_prompt(t: Tick, draft: Append) -> Prompt:
    """The prompt for the block that `draft` begins, with the header that it will have in the trace."""
    prefix = PREFIX.get(draft.type, "")
    if stems := prompts.stems(draft.type):
        prefix += random.Random(t.seed("stem")).choice(stems)
    return Prompt(type=draft.type, window=window_of(t), header=header(t, draft), prefix=prefix)


def window_of(t: Tick) -> tuple[int, int]:
    """The blocks of the trace that the model reads before the next one."""
    return window(t.cursor.index, t.settings)


def header(t: Tick, draft: Append) -> str:
    """The header lines that the block will have."""
    return render_header(record(msgspec.structs.replace(draft, body=""), t.cursor))


def probability(answer: YesNo) -> float:
    """P(yes), of yes and no alone; a half where the model said neither."""
    mass = answer.yes + answer.no
    return answer.yes / mass if mass > 0 else 0.5


def complaint(chosen: ScoredCandidate) -> str:
    """The text of the error block after a block that does not compile."""
    if chosen.candidate.finish_reason == "length":
        tokens = chosen.tokens
        return f"The block ran over its {tokens} tokens and was cut off before its end. Write a shorter one."
    return f"The block is not legal Python and was not used. {chosen.verdict.error}"
