"""The research agent in a plain loop: its budgets, parallel calls, and how it leaves a loop."""

import inspect
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from simulation.policies import research as policy
from simulation.policies.dialogue import Conversation
from weavegen.agents import AGENTS, Tick, research
from weavegen.agents.research import (
    HEAD_PERCENT,
    MAX_ANSWER_CHARS,
    MAX_CALLS,
    MAX_MESSAGES,
    TOOLS,
    State,
    allowance,
    doom_loop,
)
from weavegen.box.calls import shorten
from weavegen.errors import ModelError, RolloutError
from weavegen.kernel import prompts
from weavegen.kernel.replay import Cursor, Entry, Start, decode_result, decode_step, encode, replay
from weavegen.kernel.settings import Settings
from weavegen.kernel.steps import Candidate, Ended, LookUp, LookUpResult, Note, Sample, Step
from weavegen.search import lookups
from weavegen.trace.blocks import Block, BlockType

LENGTH = 100_000
Answer = Callable[[LookUp], LookUpResult | RolloutError]


def call(name: str, **arguments: Any) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def search(query: str) -> str:
    return call("search_documents", query=query)


class Researcher:
    """A trace in memory.

    The model says the next text of `says`. A text may come with a number, the length of the conversation in tokens.
    """

    def __init__(
        self,
        says: list[str | tuple[str, int] | RolloutError],
        answer: Answer = lambda step: LookUpResult(output=f"{step.tool} {json.dumps(step.arguments)}"),
        length: int | None = LENGTH,
        settings: Settings | None = None,
        **task: Any,
    ) -> None:
        self.says, self.answer, self.length = list(says), answer, length
        self.settings = settings or Settings()
        self.source = json.dumps({"task": "How long is the lantern's wick?", **task})
        self.blocks: list[Block] = []
        self.notes: list[str] = []
        self.groups: list[list[Step]] = []
        """Steps that ran side by side, in order."""
        self.ended: Ended | None = None
        self.ticks = 0
        self.state: Any = None

    def run(self) -> dict[str, Any]:
        while self.ended is None:
            self._tick()
            assert self.ticks < 200
        assert isinstance(self.ended.returned, dict)
        return self.ended.returned

    def _tick(self) -> None:
        last = self.blocks[-1].type if self.blocks else None
        start = Start(
            trace_seed=1, tick=self.ticks, clock=0.0, deadline=1e6, blocks=len(self.blocks), last_type=last,
            state=self.state,
        )  # fmt: skip
        journal: list[Entry] = []
        while True:
            cursor = Cursor(start)
            advance = replay(AGENTS["research"].program(Tick(self.settings, cursor, self.source)), cursor, journal)
            for effect, block in advance.effects:
                self.blocks += [block] if block is not None else []
                self.notes += [effect.detail] if isinstance(effect, Note) else []
            if advance.ended is not None:
                break
            self.groups += [[step for _, step in advance.steps]]
            for _, step in advance.steps:
                journal.append(self._entry(step))
        self.ticks += 1
        # What a tick passes to the next one goes through the database.
        self.state = json.loads(json.dumps(advance.ended.state))
        assert len(encode(self.state)) < 2_000
        self.ended = advance.ended if advance.ended.done else None

    def _entry(self, step: Step) -> Entry:
        result: Any
        if isinstance(step, LookUp):
            result = self.answer(step)
        else:
            assert isinstance(step, Sample)
            result = self.says.pop(0)
            if not isinstance(result, RolloutError):
                text, tokens = (result, 20) if isinstance(result, str) else result
                sampled = Candidate(
                    text=text, finish_reason="stop", tokens=10, prompt_tokens=tokens - 10, length=self.length
                )
                result = [sampled]
        kind = str(step.__struct_config__.tag)
        assert decode_step(kind, json.loads(encode(step))) == step
        if isinstance(result, RolloutError):
            return Entry(step, done=True, failure=result)
        return Entry(step, done=True, result=decode_result(kind, json.loads(encode(result))))

    def messages(self, type: BlockType = BlockType.USER) -> list[str]:
        """Messages of a type, without the task."""
        return [block.body for block in self.blocks[2:] if block.type is type]

    @property
    def answers(self) -> list[dict[str, Any]]:
        """Results of all calls, as the model reads them."""
        lines = "\n".join(self.messages(BlockType.TOOL)).split("\n") if self.messages(BlockType.TOOL) else []
        return [json.loads(line.removeprefix("<tool_response>").removesuffix("</tool_response>")) for line in lines]


def test_calls_of_one_message_run_in_parallel_and_are_answered_in_order() -> None:
    trace = Researcher([search("wick") + call("list_documents") + search("oil"), "Three inches."])
    returned = trace.run()
    assert [len(group) for group in trace.groups] == [1, 3, 1]
    assert [answer["output"].split()[0] for answer in trace.answers] == [
        "search_documents",
        "list_documents",
        "search_documents",
    ]
    assert returned == {"summary": "Three inches.", "iterations": 2, "tool_calls": 3, "total_tokens": 20, "error": None}
    assert [block.type for block in trace.blocks[:2]] == [BlockType.SYSTEM, BlockType.USER]
    assert trace.ended is not None
    assert trace.ended.failed is None


def test_progress_notes_for_people() -> None:
    trace = Researcher([search("wick") + call("read_document", path="a.md"), "Done."], task="x\ny" + "z" * 60)
    trace.run()
    label = "research: x y" + "z" * 47 + "…"
    assert trace.notes == [
        f"{label} | started",
        f'{label} | > search_documents {{"query": "wick"}}',
        f'{label} | > read_document {{"path": "a.md"}}',
        f"{label} | done: 2 tool calls, 20 tokens",
    ]


def test_the_prompts() -> None:
    general, literature = (Researcher(["Done."], context="We build one."), Researcher(["Done."], prompt="literature"))
    general.run(), literature.run()
    for trace in (general, literature):
        assert "{tools}" not in trace.blocks[0].body
        for tool in TOOLS:
            assert f'"name": "{tool.name}"' in trace.blocks[0].body
    assert "We build one." in general.blocks[1].body
    assert "## Recipes\n| Rank |" in literature.blocks[0].body
    assert "## Recipes" not in general.blocks[0].body


@pytest.mark.parametrize("task", [{"task": " "}, {"task": "x", "prompt": "poem"}, {"task": "x", "more": 1}, {}])
def test_tasks_of_another_form_are_refused(task: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(task, research.Task)


class TestContext:
    def test_it_is_warned_at_85_percent_and_not_earlier(self) -> None:
        trace = Researcher([(search("a"), 84_999), (search("b"), 85_000), (search("c"), 86_000), "Done."])
        trace.run()
        [warned] = trace.messages()
        assert "85% of your context is used" in warned
        kinds = [block.type for block in trace.blocks[2:]]
        assert kinds == ["assistant", "tool", "assistant", "tool", "user", "assistant", "tool", "assistant"]

    def test_it_is_warned_once(self) -> None:
        says: list[str | tuple[str, int] | RolloutError] = [(search(str(n)), 90_000 + n) for n in range(5)]
        trace = Researcher([*says, "Done."])
        trace.run()
        assert len(trace.messages()) == 1

    def test_it_is_stopped_at_95_percent_and_not_earlier(self) -> None:
        trace = Researcher([(search("a"), 94_999), (search("b"), 95_000), ("All that I know.", 95_900)])
        returned = trace.run()
        assert trace.messages()[-1] == prompts.message("research", "context_spent")
        assert returned["summary"] == "All that I know."
        assert (returned["iterations"], returned["tool_calls"], returned["total_tokens"]) == (2, 2, 95_900)
        assert returned["error"] is None

    def test_a_jump_from_below_85_to_above_95_percent_stops_it_without_a_warning(self) -> None:
        trace = Researcher([(search("a"), 96_000), "All."])
        trace.run()
        assert trace.messages() == [prompts.message("research", "context_spent")]

    def test_calls_in_the_last_message_are_not_run(self) -> None:
        trace = Researcher([(search("a"), 95_000), f"<think>But</think>All. {search('b')}{call('terminal')}"])
        returned = trace.run()
        assert returned["summary"] == "All."
        assert returned["tool_calls"] == 1
        assert trace.blocks[-1].type is BlockType.ASSISTANT

    def test_a_last_message_with_only_calls_is_not_a_summary(self) -> None:
        returned = Researcher([(search("a"), 95_000), search("b")]).run()
        assert returned["summary"] == ""
        assert "no summary" in returned["error"]

    def test_an_error_of_the_model_instead_of_the_summary_is_reported(self) -> None:
        trace = Researcher([(search("a"), 99_000), ModelError("the prompt is too long")])
        returned = trace.run()
        assert returned["summary"] == ""
        assert "the prompt is too long" in returned["error"]
        assert (returned["iterations"], returned["tool_calls"], returned["total_tokens"]) == (1, 1, 99_000)
        assert trace.ended is not None
        assert trace.ended.failed == "model"

    def test_a_failing_model_keeps_earlier_answers(self) -> None:
        trace = Researcher([search("a"), ModelError("no such model")])
        returned = trace.run()
        assert returned["summary"] == ""
        assert "no such model" in returned["error"]
        assert returned["iterations"] == 1
        assert len(trace.answers) == 1, "Are the answers until then kept?"

    def test_without_a_known_context_length_it_is_neither_warned_nor_stopped(self) -> None:
        trace = Researcher([(search("a"), 10**7), (search("b"), 10**7), "Done."], length=None)
        assert trace.run()["iterations"] == 3
        assert trace.messages() == []

    def test_answers_leave_room_for_the_summary(self) -> None:
        trace = Researcher(
            [(search("a") + search("b"), 94_000), "Done."], lambda _: LookUpResult(output="x" * 7_000), LENGTH
        )
        trace.run()
        for answer in trace.answers:
            assert 1_500 <= len(answer["output"]) < 1_600, "Are 1,000 tokens left for both?"
            assert "5500 characters left out" in answer["output"]


class TestIterations:
    def test_after_60_iterations_it_is_asked_for_its_summary(self) -> None:
        trace = Researcher([*(search(str(number)) for number in range(60)), "All."])
        returned = trace.run()
        assert (returned["iterations"], returned["tool_calls"], returned["summary"]) == (60, 60, "All.")
        assert trace.messages() == [prompts.message("research", "iterations_spent").format(count=60)]
        assert trace.ticks == MAX_MESSAGES + 2

    def test_a_summary_in_the_60th_iteration_is_accepted(self) -> None:
        trace = Researcher([*(search(str(number)) for number in range(59)), "All."])
        assert trace.run()["iterations"] == 60
        assert trace.messages() == []

    def test_a_setting_limits_the_iterations(self) -> None:
        trace = Researcher([search("a"), search("b"), search("c"), "All."], settings=Settings(steps=2))
        trace.says.pop(2)
        assert trace.run()["iterations"] == 2

    def test_a_message_with_only_thoughts_is_followed_by_a_request_for_the_summary(self) -> None:
        trace = Researcher([search("a"), "<think>Hm.</think>", "All."])
        returned = trace.run()
        assert (returned["iterations"], returned["summary"]) == (2, "All.")
        assert trace.messages() == [prompts.message("research", "nothing_said")]


A, B, C, D, E, F = ((f"call {letter}", f"answer {letter}") for letter in "abcdef")


@pytest.mark.parametrize(
    ("recent", "expected"),
    [
        ([A, A, A], "last 3 calls were the same"),
        ([B, A, A, A], "last 3 calls were the same"),
        ([A, B, A, B], "the last 2 calls are"),
        ([C, A, B, A, B], "the last 2 calls are"),
        ([A, B, C, A, B, C], "the last 3 calls are"),
        ([A, B, C, D, A, B, C, D], "the last 4 calls are"),
        ([A, B, C, D, E, A, B, C, D, E], "the last 5 calls are"),
        ([A, A, B, A, A, B], "the last 3 calls are"),
        ([], None),
        ([A, A], None),
        ([A, A, B, A], None),
        ([A, A, ("call a", "another answer")], None),
        ([("call a", str(number)) for number in range(10)], None),
        ([A, B, A], None),
        ([A, B, A, C], None),
        ([A, B, B, A], None),
        ([A, B, C, A, B], None),
        ([A, B, C, D, E, A, B, C, D, F], None),
    ],
)
def test_doom_loop(recent: list[research.CallDigest], expected: str | None) -> None:
    loop = doom_loop(recent)
    assert loop is None if expected is None else expected in str(loop)


class TestDoomLoop:
    def test_it_is_warned_once_for_each_repetition(self) -> None:
        trace = Researcher([*[search("a")] * 3, *[search("a")] * 3, search("b"), "All."])
        trace.run()
        assert len(trace.messages()) == 2
        assert "the last 3 calls were the same" in trace.messages()[0]
        kinds = [block.type for block in trace.blocks[2:]]
        assert kinds[:8] == ["assistant", "tool"] * 3 + ["user", "assistant"]
        assert any("goes round in circles" in note for note in trace.notes)

    def test_different_answers_are_not_a_loop(self) -> None:
        counter = iter(range(9))
        trace = Researcher([*[search("a")] * 5, "All."], lambda _: LookUpResult(output=str(next(counter))))
        trace.run()
        assert trace.messages() == []

    def test_repetitions_within_one_message_count(self) -> None:
        trace = Researcher([search("a") + search("b"), search("a") + search("b"), "All."])
        trace.run()
        assert "the last 2 calls are the 2 before them once more" in trace.messages()[0]

    def test_malformed_calls_count(self) -> None:
        trace = Researcher([*["<tool_call>{nonsense}</tool_call>"] * 3, "All."])
        assert trace.run()["tool_calls"] == 0
        assert len(trace.messages()) == 1


class TestAnswers:
    @pytest.mark.parametrize("length", [MAX_ANSWER_CHARS - 1, MAX_ANSWER_CHARS])
    def test_up_to_8000_characters_are_kept(self, length: int) -> None:
        assert shorten("x" * length, MAX_ANSWER_CHARS, HEAD_PERCENT) == "x" * length

    def test_longer_answers_keep_their_beginning_and_end(self) -> None:
        text = "".join(f"{number:05} " for number in range(3_000))
        shown = shorten(text, MAX_ANSWER_CHARS, HEAD_PERCENT)
        assert shown.startswith(text[:4_800] + "\n... (10000 characters left out) ...\n")
        assert shown.endswith(" ...\n" + text[-3_200:])
        trace = Researcher([search("a"), "Done."], lambda _: LookUpResult(output=text))
        trace.run()
        assert trace.answers[0]["output"] == shown

    def test_room_for_answers(self) -> None:
        assert allowance(State(label="", tokens=10**6), 3) == MAX_ANSWER_CHARS
        assert allowance(State(label="", tokens=1_000, length=LENGTH), 3) == MAX_ANSWER_CHARS
        assert allowance(State(label="", tokens=94_900, length=LENGTH), 1) == 300
        assert allowance(State(label="", tokens=99_000, length=LENGTH), 2) == 200

    @pytest.mark.parametrize(
        ("message", "complaint"),
        [
            ("<tool_call>{nonsense}</tool_call>", "not valid JSON"),
            ('<tool_call>{"arguments": {}}</tool_call>', "no name"),
            ('<tool_call>{"name": "list_documents"', "not closed"),
            (call("terminal", command="ls"), "there is no tool 'terminal'"),
            (call("write_file", path="a", content="b"), "there is no tool"),
            (call("find_tools", query="a"), "there is no tool 'find_tools'"),
            (call("search_documents"), "query"),
            (call("search_documents", query=1), "query"),
            (call("search_documents", query="a", more=1), "more"),
            (call("search_documents", query="a\0b"), "can't be stored"),
            ('<tool_call>{"name": "sql", "arguments": {"query": "\\ud800"}}</tool_call>', "can't be stored"),
            (call("read_blocks", trace=10**30), ""),
            (call("read_blocks", trace=float("nan")), ""),
            ('<tool_call>{"name": "sql", "arguments": ' + "[" * 900 + "]" * 900 + "}</tool_call>", "object"),
        ],
    )
    def test_bad_calls_are_answered_and_the_run_goes_on(self, message: str, complaint: str) -> None:
        trace = Researcher([message + search("a") if message.endswith("</tool_call>") else message, "Done."])
        returned = trace.run()
        assert returned["summary"] == "Done."
        assert trace.answers[0]["success"] is False
        assert complaint in trace.answers[0]["error"]
        if message.endswith("</tool_call>"):
            assert trace.answers[1]["success"] is True
            assert returned["tool_calls"] == 1

    def test_a_failing_tool_gives_an_error_as_its_answer(self) -> None:
        trace = Researcher([search("a"), "Done."], lambda _: LookUpResult(success=False, output="it took too long"))
        assert trace.run()["summary"] == "Done."
        assert trace.answers == [{"success": False, "error": "it took too long"}]

    def test_a_tool_that_can_not_run_at_all_gives_an_error_as_its_answer(self) -> None:
        trace = Researcher([search("a") + search("b"), "Done."], lambda _: RolloutError("30 workers took it"))
        assert trace.run()["summary"] == "Done."
        assert ["30 workers took it" in answer["error"] for answer in trace.answers] == [True, True]

    def test_calls_beyond_the_limit_of_a_message(self) -> None:
        trace = Researcher(["".join(search(str(number)) for number in range(20)), "Done."])
        assert trace.run()["tool_calls"] == MAX_CALLS
        assert [answer["success"] for answer in trace.answers] == [True] * MAX_CALLS + [False] * 4


def test_the_simulated_model_reaches_a_summary_and_makes_mistakes_before() -> None:
    """The policy itself runs in this loop; the integration test runs it over HTTP."""
    complaints, corrections = 0, 0
    for seed in range(40):
        prompt = "literature" if seed % 2 else "general"
        trace = Researcher([], lambda step: LookUpResult(output=shown(step)), prompt=prompt)

        class Model(list[Any]):
            def pop(self, _: Any = 0, trace: Researcher = trace, seed: int = seed) -> str:
                roles = {BlockType.SYSTEM: "system", BlockType.ASSISTANT: "assistant"}
                chat = Conversation([(roles.get(block.type, "user"), block.body) for block in trace.blocks])
                assert policy.knows(chat)
                text = policy.write(chat, seed, 0)
                assert policy.write(chat, seed, 0) == text
                return text

        trace.says = Model()
        returned = trace.run()
        assert returned["summary"], returned
        assert ("## Recipes\n| Rank |" in returned["summary"]) == (prompt == "literature")
        assert "simulation" in returned["summary"]
        complaints += sum(not answer["success"] for answer in trace.answers)
        corrections += len(trace.messages())
    assert complaints > 5
    assert corrections > 0


def shown(step: LookUp) -> str:
    """The answers of a folder with two documents."""
    if step.tool == "list_documents":
        return "lamps/wick.md (12 lines)\nlamps/oil.md (90 lines)"
    if step.tool == "search_documents":
        return "lamps/wick.md, lines 3 to 7 (score 2.25):\nThe lantern's wick is long.\nIt burns."
    if step.tool == "search_corpus":
        return "trace 3, block 14, action (score 4.20):\ndef action_light_lantern(self):\n    pass"
    return f"3: the lantern and {json.dumps(step.arguments)}"


@pytest.mark.parametrize("name", lookups.TOOLS)
def test_a_look_up_tool_takes_the_arguments_that_are_declared(name: str) -> None:
    _, _, *parameters = inspect.signature(lookups.TOOLS[name]).parameters
    assert tuple(parameters) == prompts.arguments(name).__struct_fields__
