"""What the model reads before a block, how many candidates are sampled, and which one is chosen."""

import math
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import structs

from tests.support.policies import compose
from tests.support.recording_server import Server
from tests.support.script import FAILURE, GOOD, MAIN, T, Trials, drafts, odds_for, samples, steps, tick, types, writes
from tests.support.templates import MISTRAL
from tests.support.world import Trace
from weavegen.kernel import prompts
from weavegen.kernel.context import block_stops, window
from weavegen.kernel.settings import Settings, settings
from weavegen.kernel.steps import (
    Asserted,
    Candidate,
    Evaluated,
    Executed,
    Failure,
    Hit,
    Prompt,
    Retrieve,
    Sample,
    Score,
)
from weavegen.kernel.template import Template
from weavegen.linting.lint import lint
from weavegen.pool.client import ModelClient
from weavegen.trace.blocks import BlockType
from weavegen.trace.render import render_block

BROKEN = "def action_go(self:"


def rounds(type: BlockType, **answers: Any) -> list[int]:
    """The number of candidates in each round in which the first block of a type was written."""
    first = samples(tick(s={"attempts": 1}, **answers), type)
    return [step.n for step in first]


# ---------------------------------------------------------------------------------------- the prompt


def test_order_of_the_parts_of_a_prompt() -> None:
    """A prompt is `<s> [INST] `, context, retrieved blocks, instruction, the type's hint, ` [/INST]`, header."""
    prompt = Prompt(type=T.DEBUG, window=(2, 3), header="#subagent main\n#startblock type: debug\n", prefix='"""')
    recalled = [
        (T.ACTION, "#startblock type: action\nx = 1\n#endblock\n\n"),
        (T.DEBUG, '#startblock type: debug\n"""So."""\n#endblock\n\n'),
    ]
    text = compose(prompt, ["GENESIS\n", "BOOTSTRAP\n"], ["LAST\n"], recalled)
    assert text == (
        "<s> [INST] GENESIS\nBOOTSTRAP\nLAST\n"
        "# START RETRIEVED BLOCKS\n"
        "# Retrieved block 1:\n# #startblock type: recalled-action\n# x = 1\n# #endblock\n"
        '# Retrieved block 2:\n# #startblock type: recalled-debug\n# """So."""\n# #endblock\n'
        "# END RETRIEVED BLOCKS\n\n"
        f"{prompts.instruction(T.DEBUG)} [/INST]\n#subagent main\n#startblock type: debug\n"
    )
    assert "next block begins" in prompts.instruction(T.DEBUG)
    hints = {type: prompts.instruction(type).split("# Hint:")[1] for type in GOOD}
    assert len(set(hints.values())) == len(GOOD)


def test_the_prompt_has_the_header_that_the_recorded_block_will_have() -> None:
    """The prompt ends with exactly the header lines that the recorded block has."""
    trace = tick()
    for block in trace.blocks:
        if block.type in GOOD:
            assert render_block(block).startswith(samples(trace, block.type)[-1].prompt.header)


def test_the_prompt_wrapper_is_the_models_own() -> None:
    """`[INST]` belongs to the chat template of one model family; other models have another one."""
    template = Template(block_open="<|user|>", block_close="<|assistant|>")
    text = compose(Prompt(type=T.ACTION, window=(2, 2), header="HEADER\n"), [], [], [], template)
    assert text.startswith("<|user|>")
    assert text.endswith("<|assistant|>\nHEADER\n")


@pytest.mark.parametrize(
    ("type", "prefix"),
    [
        (T.ORIENTATION, '"""'),
        (T.EXPECTATION, '"""'),
        (T.ACTION, "def action_"),
        (T.EVALUATION, "def eval_"),
        (T.OBSERVATION_INFERENCE, ""),
    ],
)
def test_the_body_of_each_type_starts_with_a_fixed_prefix(type: BlockType, prefix: str) -> None:
    """The prefix is three quotes, the beginning of a function's name, or nothing."""
    assert {step.prompt.prefix for step in samples(tick(option=20.0), type)} == {prefix}


@pytest.mark.parametrize(("type", "number"), [(T.DEBUG, 17), (T.BACKTRACK, 9)])
def test_debug_and_backtrack_start_with_a_random_stem(type: BlockType, number: int) -> None:
    """Three quotes are followed by one of as many stems as weave-agent has, which varies the reasoning."""
    stems = prompts.stems(type)
    assert len(set(stems)) == number
    assert {lint(type, f'"""{stem} this."""').penalties.total() for stem in stems} == {0}
    seen = set()
    for seed in range(200):
        answers = {"text": writes(T.ACTION, BROKEN)} if type is T.DEBUG else {"odds": odds_for(T.ACTION, 0.0)}
        trace = tick(s={"rounds": [1], "attempts": 2}, seed=seed, **answers)
        [step] = samples(trace, type)
        assert step.prompt.prefix.startswith('"""')
        seen.add(step.prompt.prefix.removeprefix('"""'))
    assert seen == set(stems)


@pytest.mark.parametrize(
    ("blocks", "first"), [(1, 2), (2, 2), (30, 2), (62, 2), (63, 22), (82, 22), (83, 42), (1000, 942)]
)
def test_the_context_is_genesis_bootstrap_and_the_last_sixty_blocks(blocks: int, first: int) -> None:
    """Blocks 0 and 1 are pinned.

    Unlike weave-agent, weavegen lets the window grow to 60 blocks and then drops 20 at once, so that every prompt in
    between extends the one before.
    """
    assert window(blocks, Settings()) == (first, max(blocks, 2))
    assert blocks - first <= 60
    trace = tick(blocks=blocks)
    [reminder] = [block for block in trace.blocks if block.type is T.TASK_REMINDER]
    assert samples(trace, T.ORIENTATION)[0].prompt.window == window(reminder.index + 1, Settings())


# -------------------------------------------------------------------------------------- the sampling


STOPS = block_stops(MISTRAL)


def test_stop_strings_of_a_continuation() -> None:
    """A continuation ends at one of four strings, or at a mark of the model's chat template."""
    assert set(STOPS) == {"\n#q: ", "\n# q:", "#endblock", "#startblock", "</s>", "[INST]", "[/INST]"}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as server:
        yield server


def test_sampling_parameters_that_the_server_receives(server: Server) -> None:
    """Temperature 1, top_k 50, repetition penalty 1.02, 768 tokens, and the step's seed."""
    trace = tick()
    asked = [step for type in GOOD for step in samples(trace, type)]
    numbers = {(s.temperature, s.top_k, s.repetition_penalty, s.max_tokens) for s in asked}
    assert numbers == {(1.0, 50, 1.02, 768)}
    client = ModelClient(server.url, "EMPTY", None, timeout=20)
    [step, *_] = asked
    client.sample(
        "<s> [INST] x", n=step.n, max_tokens=step.max_tokens, temperature=step.temperature, top_k=step.top_k,
        repetition_penalty=step.repetition_penalty, seed=step.seed, stop=STOPS,
    )  # fmt: skip
    client.close()
    sent = server.requests[-1]
    expected = {"n": 16, "temperature": 1.0, "top_k": 50, "repetition_penalty": 1.02, "max_tokens": 768}
    assert {name: sent[name] for name in expected} == expected
    assert sent["seed"] == step.seed


def test_seeds_differ_by_round_tick_and_trace() -> None:
    """Seeds derive from the trace's seed, so that equal seeds give equal traces. In weave-agent they are random."""
    seeds = [step.seed for seed in (1, 2) for number in (1, 2) for step in steps(tick(number, seed=seed), Sample)]
    assert len(set(seeds)) == len(seeds)
    assert [step.seed for step in steps(tick(), Sample)] == [step.seed for step in steps(tick(), Sample)]


@pytest.mark.parametrize("stop", STOPS)
def test_every_stop_string_ends_a_text(server: Server, stop: str) -> None:
    """The server receives four stop strings, the most that vLLM accepts. The client cuts the text at the others."""
    server.text = f"x = 1{stop} and more"
    client = ModelClient(server.url, "EMPTY", None, timeout=20)
    numbers = {"n": 1, "max_tokens": 768, "temperature": 1.0, "top_k": 50, "repetition_penalty": 1.02, "seed": 1}
    [continuation] = client.sample("<s> [INST] x", stop=STOPS, **numbers).continuations  # type: ignore[arg-type]
    client.close()
    assert continuation.text == "x = 1"
    assert len(server.requests[-1]["stop"]) == 4


# --------------------------------------------------------------------------------------- the rounds


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [(1.0, 0.0, [4]), (0.99, 1.0, [4, 16]), (0.99, 0.99, [4, 16, 64]), (-3.0, 5.0, [4, 16])],
)
def test_rounds_of_4_16_and_64_until_the_best_scores_1(first: float, second: float, expected: list[int]) -> None:
    """A best score below 1 after 4 candidates leads to a round of 16, and below 1 again to a round of 64."""
    scores = [first, second, 0.0]
    assert rounds(T.ACTION, odds=lambda step, at: scores[step.round] if at == 2 else -4.0) == expected


@pytest.mark.parametrize("type", [T.ACTION, T.EXPECTATION, T.EVALUATION])
def test_one_good_round_suffices_for_every_type_except_orientation(type: BlockType) -> None:
    """An orientation begins with the round of 16, because it always retrieves. weave-agent samples 4 before it."""
    assert rounds(type, odds=lambda step, at: 8.0) == [4]
    assert rounds(T.ORIENTATION, odds=lambda step, at: 8.0) == [16]


def test_a_round_whose_best_candidate_does_not_compile_is_not_accepted() -> None:
    """Its score of 3.5 less 2 is above 1, but it does not compile. One other candidate that compiles is enough."""
    assert rounds(T.ACTION, text=writes(T.ACTION, BROKEN), odds=odds_for(T.ACTION, 3.5)) == [4, 16, 64]
    text = lambda step, at: BROKEN if step.prompt.type is T.ACTION and at else GOOD[step.prompt.type]  # noqa: E731
    assert rounds(T.ACTION, text=text, odds=odds_for(T.ACTION, 2.5)) == [4]


def test_penalties_count_when_a_round_is_accepted() -> None:
    """A score of 1.5 with a penalty of 1 is not enough."""
    assert rounds(T.ACTION, text=writes(T.ACTION, GOOD[T.ACTION] + "\nx = 1"), odds=odds_for(T.ACTION, 1.5)) == [
        4,
        16,
        64,
    ]


@pytest.mark.parametrize("type", [T.ORIENTATION, T.ACTION, T.BACKTRACK])
def test_orientation_action_and_backtrack_retrieve_after_the_first_round(type: BlockType) -> None:
    """From the second round on, up to 3 retrieved blocks are in the prompt; the third round has the same ones.

    The model writes the query. In the last version of weave-agent the best candidate was the query.
    """
    hits = [Hit(id=number, score=9.0 - number) for number in range(5)]
    trace = tick(
        s={"attempts": 2}, hits=hits, odds=odds_for(type, -1.0) if type is T.ORIENTATION else odds_for(type, 0.0, 0.05)
    )
    before = [] if type is T.ORIENTATION else [()]
    shown = [step.prompt for step in samples(trace, type)[: len(before) + 2]]
    assert [prompt.recalled for prompt in shown] == [*before, tuple(hits[:3]), tuple(hits[:3])]
    assert shown[-1] == shown[-2]
    assert shown[-1].window == shown[0].window


@pytest.mark.parametrize("type", [T.EXPECTATION, T.DEBUG, T.EVALUATION, T.OBSERVATION_INFERENCE])
def test_other_block_types_never_retrieve(type: BlockType) -> None:
    """They do not retrieve even when they are sampled in several rounds."""
    trace = tick(option=20.0, odds=odds_for(type, 0.5), runs=[Executed(error=FAILURE, subagents=(MAIN,))])
    assert [step.n for step in samples(trace, type)] == [4, 16, 64]
    assert all(step.prompt.recalled == () for step in samples(trace, type))
    assert len(steps(trace, Retrieve)) == 1, "only the orientation retrieves"


def test_the_best_draft_is_shown_in_the_next_round_if_that_is_set() -> None:
    """As a retrieved block, behind those that were retrieved."""
    trace = tick(
        s={"show_draft": True},
        text=lambda step, at: act(at) if step.prompt.type is T.ACTION else GOOD[step.prompt.type],
        odds=lambda step, at: 4.0 if step.prompt.type is not T.ACTION else 0.5 if at == 2 else 0.0,
    )
    first, second, third = [step.prompt for step in samples(trace, T.ACTION)[:3]]
    assert (first.draft, second.draft, third.draft) == ("", act(2), act(2))
    shown = "".join(f"# {line}\n" for line in act(2).splitlines())
    text = compose(second, [], [], [])
    assert f"# Retrieved block 1:\n# #startblock type: recalled-action\n{shown}# #endblock\n" in text


def act(number: int) -> str:
    """A good action of its own."""
    return GOOD[T.ACTION].replace("go()", f"go({number})")


def test_the_block_is_drawn_only_from_the_last_round() -> None:
    """Candidates of earlier rounds are not drawn, even if one of them scored higher."""
    trace = tick(odds=lambda step, at: (0.9 if step.round == 0 else -1.0) if step.prompt.type is T.EVALUATION else 3.0)
    [draft] = drafts(trace, T.EVALUATION)
    assert draft.candidate is not None
    chosen = trace.journal[draft.candidate[0]].step
    assert isinstance(chosen, Sample)
    assert (chosen.round, chosen.n) == (2, 64)


def test_the_draw_is_a_softmax_of_the_scores() -> None:
    """Of the scores 0 and ln 4, the second is drawn with probability 4/5."""
    taken = 0
    for seed in range(80):
        trace = tick(
            s={"rounds": [2]},
            seed=seed,
            odds=lambda step, at: at * math.log(4) if step.prompt.type is T.EVALUATION else 3.0,
        )
        [draft] = drafts(trace, T.EVALUATION)
        assert draft.candidate is not None
        taken += draft.candidate[1]
    assert taken / 80 == pytest.approx(0.8, abs=0.12)


# ------------------------------------------------------------------------------------ after the draw


def test_a_block_that_does_not_compile_loses_2_and_is_followed_by_an_error() -> None:
    """It is recorded with a score that is 2 lower.

    Unlike in weave-agent it is commented out, so that the trace compiles.
    """
    trace = tick(text=writes(T.ACTION, BROKEN), odds=odds_for(T.ACTION, 3.5))
    at = [block.type for block in trace.blocks].index(T.ACTION)
    block, error = trace.blocks[at : at + 2]
    assert (block.compiles, block.body, block.ran) == (False, BROKEN, None)
    assert f"\n# {BROKEN}\n" in render_block(block)
    assert error.type is T.ERROR
    assert "SyntaxError" in error.body
    assert [draft.score for draft in drafts(trace, T.ACTION)] == pytest.approx([1.5] * 3)


def test_a_block_that_exceeds_its_token_limit_has_its_own_error() -> None:
    """The error says that the block exceeded 768 tokens. It does not show the syntax error at the cut."""
    cut = Candidate(text="def action_go(self):\n    x = (", finish_reason="length", tokens=768)
    trace = tick(text=writes(T.ACTION, cut))
    error = next(block for block in trace.blocks if block.type is T.ERROR)
    assert "768 tokens" in error.body
    assert "SyntaxError" not in error.body


def test_a_rewritten_block_is_scored_again_without_penalties() -> None:
    """The raw score is that of the legal structure. weavegen asks again only if rewriting changed the text."""
    trace = tick(text=writes(T.ACTION, GOOD[T.ACTION] + "\nx = 1\nprint(x)"), raw=2.25)
    [again] = [step for step in steps(trace, Score) if step.candidate is not None]
    assert again.texts == (GOOD[T.ACTION],)
    [block] = [block for block in trace.blocks if block.type is T.ACTION]
    assert block.body == GOOD[T.ACTION]
    [draft] = drafts(trace, T.ACTION)
    assert draft.score == pytest.approx(2.25)
    assert draft.candidate == again.candidate
    assert [step for step in steps(tick(), Score) if step.candidate is not None] == []


# ----------------------------------------------------------------------------------------- tree search

GROWING = Candidate(text='"""It goes on, ', finish_reason="length", tokens=1)


def test_with_tree_search_a_first_round_of_32_is_accepted_at_2_5() -> None:
    """Below 2.5, and always for an orientation, the tree search follows."""
    for score, grown in ((2.5, False), (2.49, True)):
        first, *rest = samples(tick(s={"search": "tree"}, odds=odds_for(T.ACTION, score)), T.ACTION)
        assert (first.n, first.depth) == (32, 0)
        assert bool(rest) is grown
    assert all(step.depth for step in samples(tick(s={"search": "tree"}, odds=lambda step, at: 9.0), T.ORIENTATION))


@pytest.mark.parametrize(
    ("type", "nodes", "in_round", "children"), [(T.EXPECTATION, 72, 24, 16), (T.ORIENTATION, 288, 96, 32)]
)
def test_budgets_of_the_tree_search(type: BlockType, nodes: int, in_round: int, children: int) -> None:
    """72 nodes (288 for an orientation), rounds of 24 (96), 16 (32) children, 256 tokens a node."""
    s = {"search": "tree", "max_tokens": 100_000}
    grown = [
        step for step in samples(tick(s=s, text=writes(type, GROWING), odds=odds_for(type, 0.0)), type) if step.depth
    ]
    by_round: dict[int, list[int]] = {}
    for step in grown:
        by_round.setdefault(step.round, []).append(step.n)
    assert sum(step.n for step in grown) == nodes
    assert {sum(sizes) for sizes in by_round.values()} == {in_round}
    assert {sizes[0] for sizes in by_round.values()} == {children}
    assert {step.max_tokens for step in grown} == {256}


def test_the_tree_search_has_beam_1_lookahead_3_and_temperature_0_2() -> None:
    """A low temperature makes the search prefer the better of two nodes nearly always."""
    s = {"search": "tree", "max_tokens": 100_000, "tree_nodes": 120, "tree_round": 60, "tree_children": 2}
    trace = tick(s=s, text=writes(T.EXPECTATION, GROWING), odds=odds_for(T.EXPECTATION, 0.0))
    grown = [step for step in samples(trace, T.EXPECTATION) if step.depth]
    assert max(step.depth for step in grown if step.round == 1) == 3
    top = set()
    for step in grown:
        if step.round == 2:
            above = step
            while above.depth > 2:
                assert above.parent is not None
                above = trace.journal[above.parent[0]].step  # type: ignore[assignment]
            top.add(above.parent)
    assert len(top) == 1
    colder = 0
    for seed in range(50):
        s = {
            "search": "tree",
            "tree_first": 0,
            "tree_nodes": 2,
            "tree_children": 2,
            "types": {"orientation": {"tree_nodes": 1}},
        }
        trace = tick(s=s, seed=seed, odds=lambda step, at: at * math.log(2))
        [draft] = drafts(trace, T.EXPECTATION)
        assert draft.candidate is not None
        colder += draft.candidate[1]
    assert colder >= 45, "expected odds are 32 to 1; temperature 1 would give 2 to 1"


# ---------------------------------------------------------------------------------- search that executes


def tried(*results: Executed, s: dict[str, Any] | None = None, of: BlockType = T.ACTION, **answers: Any) -> Trace:
    """One tick in which trials of actions have these results."""
    world = Trials(**answers)
    world.trials, world.of = list(results), of
    trace = Trace(world, 1, settings({"search": "execute", "attempts": 1} | (s or {})))
    return trace.run()


def test_a_candidate_that_does_not_compile_does_not_win_over_those_that_failed_when_they_were_tried() -> None:
    trace = tried(
        Executed(error=FAILURE),
        s={"rounds": [2]},
        text=lambda step, at: BROKEN if step.prompt.type is T.ACTION and at == 0 else GOOD[step.prompt.type],
        odds=lambda step, at: -20.0 if at == 0 else 3.0,
    )
    [action] = [block for block in trace.blocks if block.type is T.ACTION]
    assert action.body == GOOD[T.ACTION]


def test_a_candidate_that_does_not_compile_may_win_where_none_was_tried() -> None:
    trace = tried(
        Executed(not_tried="it waits for another agent"),
        s={"rounds": [2]},
        text=lambda step, at: BROKEN if step.prompt.type is T.ACTION and at == 0 else GOOD[step.prompt.type],
        odds=lambda step, at: 3.0 if at == 0 else -20.0,
    )
    [action] = [block for block in trace.blocks if block.type is T.ACTION]
    assert not action.compiles


def outcome(*values: bool | None, tick: bool = False, **more: Any) -> Executed:
    """A trial after which the task's evaluations have these values. Before it, the first was true. None: it raised."""
    scope: Any = "tick" if tick else "task"
    evaluations = tuple(
        Evaluated(title=f"{n}?", scope=scope, value=value, error=FAILURE if value is None else None)
        for n, value in enumerate(values)
    )
    before = structs.replace(MAIN, evaluations=(Evaluated(title="0?", scope="task", value=True),))
    return Executed(evaluations=evaluations, subagents=(before,), **more)


def sampled(type: BlockType, *results: Executed, **answers: Any) -> list[int]:
    """The number of candidates in each round for the first block of a type."""
    return [step.n for step in samples(tried(*results, **answers), type)]


def test_evaluations_that_were_false_before_ask_for_no_more_candidates() -> None:
    """At the start of a game, nobody has won."""
    assert sampled(T.ACTION, outcome(True, False)) == [1]


def test_a_candidate_after_which_fewer_evaluations_are_true_is_not_good_enough() -> None:
    """As many may be true as before: a game that is won is not open any more."""
    four = [outcome(False, False)] * 4
    assert sampled(T.ACTION, outcome(False, False), *four[1:], outcome(True, False)) == [1, 4]
    assert sampled(T.ACTION, outcome(False, True)) == [1]


def test_a_candidate_that_caught_the_error_of_an_assertion_is_not_good_enough() -> None:
    caught = outcome(True, assertions=(Asserted(question="Did it go?", answer=False),))
    assert sampled(T.ACTION, caught, *[outcome(True)] * 4) == [1, 4]


def test_an_evaluation_that_raises_when_it_is_tried_is_not_good_enough() -> None:
    raises, says_no = outcome(None, tick=True), outcome(False, tick=True)
    assert sampled(T.EVALUATION, raises, *[says_no] * 4, of=T.EVALUATION) == [1, 4]
    assert sampled(T.EVALUATION, says_no, of=T.EVALUATION) == [1]


def test_the_block_is_drawn_from_the_round_that_got_furthest() -> None:
    """Later rounds may get less far, and retrieve blocks for their prompts."""
    failed = [Executed(error=FAILURE)] * 4
    trace = tried(outcome(False, False), *failed, *failed, text=numbered)
    rounds = samples(trace, T.ACTION)
    assert [step.n for step in rounds] == [1, 4, 16]
    [action] = [block for block in trace.blocks if block.type is T.ACTION]
    assert "go_1_0" in action.body
    assert action.bm25_query is None
    trace = tried(outcome(False, False), outcome(False, False), *failed[1:], *failed, text=numbered)
    [action] = [block for block in trace.blocks if block.type is T.ACTION]
    assert "go_4_" in action.body, "Is it from the later one of two equal rounds?"
    assert action.bm25_query


def numbered(step: Sample, at: int) -> str:
    """A text with the size of its round and its position in it."""
    return GOOD[step.prompt.type].replace("action_go", f"action_go_{step.n}_{at}")


def test_a_difference_between_a_trial_and_the_block_is_recorded() -> None:
    def noted(*runs: Executed) -> list[str]:
        trace = tried(outcome(True), runs=runs)
        return [note.detail for note in trace.notes if note.kind == "divergence"]

    assert noted(Executed(error=FAILURE)) == ["a block of type action failed (KeyError), other than when it was tried"]
    assert noted(Executed()) == []


def test_the_reason_why_no_candidate_could_be_tried_is_recorded() -> None:
    trace = tried(Executed(), of=T.DEBUG)
    assert {(note.kind, note.detail) for note in trace.notes} >= {
        ("not tried", "a block of type action: it is of another type")
    }


def test_the_evaluator_decides_about_a_candidate_that_was_not_tried_to_its_end() -> None:
    trace = tried(Executed(not_tried="it waits for another agent"))
    assert [step.n for step in samples(trace, T.ACTION)] == [1]


@pytest.mark.parametrize(("error", "taken_back"), [(None, False), (FAILURE, True)], ids=["ran", "failed"])
def test_an_action_that_ran_when_it_was_tried_is_not_taken_back(error: Failure | None, taken_back: bool) -> None:
    trace = tried(
        *[Executed(error=error)] * 9, s={"rounds": [1], "attempts": 2}, odds=odds_for(T.ACTION, -3.0), raw=-3.0
    )
    assert (T.BACKTRACK in types(trace)) is taken_back
