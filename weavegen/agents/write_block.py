"""Writing one block: the cascade of sampling rounds (WEAVE section 4)."""

import random
from dataclasses import dataclass

import msgspec

from weavegen import prompts
from weavegen.agents.program import Part, Tick
from weavegen.blocks import FULL_BLOCK, BlockType
from weavegen.choose import accepts, draw, mean_score, penalised
from weavegen.context import window
from weavegen.journal import record
from weavegen.query import parse, restricted
from weavegen.render import one_line, render_header
from weavegen.steps import Append, Candidate, Lint, Prompt, Retrieve, Sample, Score, Verdict, YesNo

PREFIX = {
    BlockType.ORIENTATION: '"""',
    BlockType.EXPECTATION: '"""',
    BlockType.DEBUG: '"""',
    BlockType.BACKTRACK: '"""',
    BlockType.ACTION: "def action_",
    BlockType.EVALUATION: "def eval_",
}
"""How a body begins, whatever the model thinks."""

RETRIEVES = frozenset({BlockType.ORIENTATION, BlockType.ACTION, BlockType.BACKTRACK})
"""Blocks whose second round sees retrieved blocks."""


@dataclass(frozen=True)
class Written:
    """What the cascade chose. Not recorded yet: what is executed is recorded with how it went."""

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
    after_debug: bool = False,
) -> Part[Written]:
    """Sample, lint and score in growing rounds until one is good enough; draw a candidate by softmax(score)."""
    s = t.settings
    draft = Append(
        type=type,
        body="",
        began=t.cursor.now,
        block_size=FULL_BLOCK,
        tick_start=tick_start,
        working_directory=directory,
    )
    questions = prompts.questions(type)[: None if s.all_questions else 1]
    prompt = open_prompt(t, draft)
    for number, n in enumerate(s.rounds):
        if number == 1 and type in RETRIEVES:
            draft, prompt = yield from recall(t, draft, prompt)
        sample = t.cursor.ordinal
        candidates: list[Candidate] = yield Sample(
            prompt=prompt,
            n=n,
            round=number,
            max_tokens=s.max_tokens,
            temperature=s.temperature,
            top_k=s.top_k,
            repetition_penalty=s.repetition_penalty,
            seed=t.seed("sample"),
        )
        verdicts: list[Verdict]
        answers: list[list[YesNo]]
        verdicts, answers = yield (
            Lint(type=type, sample=sample, after_debug=after_debug),
            Score(prompt=prompt, questions=questions, sample=sample),
        )
        scores = [penalised(mean_score(a), v.penalties) for a, v in zip(answers, verdicts, strict=True)]
        may_end = number > 0 or type is not BlockType.ORIENTATION
        if may_end and accepts(scores, verdicts, s.accept):
            break

    chosen = draw(scores, t.seed("draw"))
    verdict, answer = verdicts[chosen], answers[chosen]
    if verdict.compiles and verdict.rewritten != candidates[chosen].text.strip("\n"):
        [answer] = yield Score(
            prompt=prompt, questions=questions, texts=(verdict.rewritten,), candidate=(sample, chosen)
        )
    score = (mean_score(answer) or 0.0) - (0.0 if verdict.compiles else 2.0)
    return Written(
        append=msgspec.structs.replace(
            draft,
            body=verdict.rewritten,
            compiles=verdict.compiles,
            question=questions[0],
            yes=probability(answer[0]),
            candidate=(sample, chosen),
            score=score,
        ),
        compiles=verdict.compiles,
        error=complaint(candidates[chosen], verdict, s.max_tokens),
        score=score,
    )


def recall(t: Tick, draft: Append, prompt: Prompt) -> Part[tuple[Append, Prompt]]:
    """Have the model write a BM25 query, and put what it finds into the prompt and the query into the header.

    The first of several samples that parses is taken; where none does, nothing is retrieved.
    """
    s = t.settings
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
    if t.cursor.index < s.young:
        query = restricted(query, draft.type)
    hits = yield Retrieve(
        query=query,
        before=prompt.window[0],
        considered=s.considered,
        least_score=s.least_score,
        limit=s.recalled,
    )
    draft = msgspec.structs.replace(draft, bm25_query=query)
    return draft, msgspec.structs.replace(prompt, header=header(t, draft), recalled=tuple(hits))


def open_prompt(t: Tick, draft: Append) -> Prompt:
    """The prompt for the block that `draft` begins, with the header that it will have in the trace."""
    prefix = PREFIX.get(draft.type, "")
    if stems := prompts.stems(draft.type):
        prefix += random.Random(t.seed("stem")).choice(stems)
    window_now = window(t.cursor.index, t.settings)
    return Prompt(type=draft.type, window=window_now, header=header(t, draft), prefix=prefix)


def header(t: Tick, draft: Append) -> str:
    """The header lines that the block will have."""
    return render_header(record(msgspec.structs.replace(draft, body=""), t.cursor))


def probability(answer: YesNo) -> float:
    """P(yes), of yes and no alone; a half where the model said neither."""
    mass = answer.yes + answer.no
    return answer.yes / mass if mass > 0 else 0.5


def complaint(candidate: Candidate, verdict: Verdict, max_tokens: int) -> str:
    """The text of the error block after a block that does not compile."""
    if candidate.finish_reason == "length":
        return f"The block ran over its {max_tokens} tokens and was cut off before its end. Write a shorter one."
    return f"The block is not legal Python and was not used. {verdict.error}"
