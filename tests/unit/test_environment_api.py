"""The agent's API, and how the runner treats the results of callbacks. No sandbox, no process."""

import asyncio
import enum
import json
import math
import re
import time
from collections import OrderedDict
from functools import partial
from pathlib import Path

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weavegen.box import api, plain, weave, wire


@pytest.fixture
def tree() -> api.Tree:
    return api.Tree("model", 60)


@pytest.fixture
def main(tree: api.Tree) -> api.Subagent:
    return tree.subagent("main", None, "Count the beans", {"beans": "integer"}, 30)


def nothing(self: api.Subagent) -> None:
    return None


def test_the_text_of_the_api_can_be_a_block_of_a_trace() -> None:
    text = Path(api.__file__).read_text()
    assert not re.search(r"^(#startblock|#endblock|#q:|#subagent|#tags:)", text, re.MULTILINE)
    assert "__future__" not in text
    assert text.isascii()
    assert len(text.splitlines()) < 290


class TestSubagent:
    def test_the_last_registered_action_of_a_tick_counts(self, main: api.Subagent) -> None:
        main.add_action("one", nothing)
        main.add_action("two", nothing)
        assert main.current_tick.action is not None
        assert main.current_tick.action["title"] == "two"

    @pytest.mark.parametrize("register", ["add_action", "add_evaluation", "add_observation_view"])
    def test_registration_needs_a_function_and_a_title(self, main: api.Subagent, register: str) -> None:
        with pytest.raises(TypeError, match="title"):
            getattr(main, register)("title", "no function")
        with pytest.raises(TypeError, match="title"):
            getattr(main, register)(3, nothing)

    def test_a_ninth_view_is_refused(self, main: api.Subagent) -> None:
        for number in range(8):
            main.add_observation_view(str(number), nothing)
        with pytest.raises(ValueError, match="remove one"):
            main.add_observation_view("ninth", nothing)
        main.remove_observation_view("0")
        main.add_observation_view("ninth", nothing)
        assert [view["title"] for view in main.observation_views] == [*map(str, range(1, 8)), "ninth"]

    def test_the_view_of_an_open_tool_can_not_be_removed(self, main: api.Subagent) -> None:
        main.tools["editor"] = object()
        main.add_observation_view("Editor", nothing, "editor")
        with pytest.raises(ValueError, match="close the tool"):
            main.remove_observation_view("Editor")
        del main.tools["editor"]
        main.remove_observation_view("Editor")
        assert main.observation_views == []

    def test_the_cache(self, main: api.Subagent) -> None:
        main.update_cache("a", 1)
        assert main.get_cache("a") == 1
        main.delete_cache("a")
        main.delete_cache("a")
        assert main.get_cache("a") is None

    def test_what_a_subagent_knows_of_itself(self, tree: api.Tree, main: api.Subagent) -> None:
        helper = tree.subagent("helper", main.name, "Count the red beans", {}, 5)
        assert (helper.tree, helper.parent, main.parent, main.children) == (tree, "main", None, ["helper"])
        assert (helper.time_budget, helper.cache, helper.task.description) == (5, {}, "Count the red beans")
        assert 0 < helper.end_time - time.time() <= 300
        helper.task.add_evaluation("Is it so?", nothing)
        assert [one["title"] for one in helper.task.evaluations] == ["Is it so?"]
        assert helper.task.run_evaluations() == {"nothing": None}

    def test_the_context_is_the_last_sixty_blocks(self, tree: api.Tree, main: api.Subagent) -> None:
        tree.blocks += [{"type": "action", "index": i, "body": f"body {i}"} for i in range(70)]
        assert main.context.startswith("#startblock type: action\nbody 10\n#endblock\n")
        assert main.context.count("#endblock") == 60


class TestReturning:
    def test_evaluations_of_the_task_are_part_of_the_returned_value(self, main: api.Subagent) -> None:
        def all_counted(self: api.Subagent) -> bool:
            return True

        async def counted_twice(self: api.Subagent) -> bool:
            await asyncio.sleep(0)
            return False

        def broken(self: api.Subagent) -> bool:
            raise RuntimeError

        for callback in (all_counted, counted_twice, broken, partial(all_counted)):
            main.task.add_evaluation("Is it so?", callback)
        main.return_to_caller({"beans": 7})
        assert main.completed
        assert main.returned == {
            "beans": 7,
            "all_counted": True,
            "counted_twice": False,
            "broken": "ERROR",
            "Is it so?": True,
        }

    @pytest.mark.parametrize("value", [{}, {"beans": "7"}, {"beans": 7.5}, {"beans": True}, {"beans": None}])
    def test_a_value_that_does_not_fit_the_schema_is_refused(self, main: api.Subagent, value: object) -> None:
        with pytest.raises(ValueError, match="schema"):
            main.return_to_caller(value)  # type: ignore[arg-type]
        assert not main.completed
        assert main.returned is None

    @pytest.mark.parametrize(
        ("rule", "good", "bad"),
        [
            ("string", "a", 1),
            ("boolean", False, 0),
            ("number", 1, True),
            ("float", 1.5, "1.5"),
            ("list", [], {}),
            ({"type": ["string", "null"]}, None, 1),
            ({"enum": ["won", "lost"]}, "won", "drawn"),
            ({"type": "object"}, {}, []),
            ({}, 1, ...),
        ],
    )
    def test_types(self, rule: object, good: object, bad: object) -> None:
        api.check_schema({"key": good, "more": 1}, {"key": rule})
        if bad is not ...:
            with pytest.raises(ValueError, match="schema"):
                api.check_schema({"key": bad}, {"key": rule})


class TestTree:
    def test_subagents_have_parents(self, tree: api.Tree, main: api.Subagent) -> None:
        tree.subagent("helper", "main", "Count again", {}, 5)
        assert main.children == ["helper"]
        board = tree.view_board()
        assert "Count the beans" in board
        assert "Count again" in board
        with pytest.raises(ValueError, match="already"):
            tree.subagent("helper", None, "", {}, 1)

    def test_only_an_action_can_run_a_subagent(self, tree: api.Tree, main: api.Subagent) -> None:
        with pytest.raises(RuntimeError, match="action"):
            tree.run("main")

    def test_a_subagent_that_has_returned_can_not_run_again(self, tree: api.Tree, main: api.Subagent) -> None:
        main.return_to_caller({"beans": 3})
        with pytest.raises(ValueError, match="another subagent"):
            tree.run("main")

    @pytest.mark.parametrize("name", ["main", "two\nlines", "x" * 101])
    def test_the_name_of_a_subagent_is_one_line_and_unique(self, tree: api.Tree, main: api.Subagent, name: str) -> None:
        with pytest.raises(ValueError, match="subagent"):
            tree.subagent(name, None, "", {}, 1)

    def test_the_sixty_fifth_subagent_is_refused(self, tree: api.Tree) -> None:
        for number in range(64):
            tree.subagent(str(number), None, "", {}, 1)
        with pytest.raises(ValueError, match="64"):
            tree.subagent("one more", None, "", {}, 1)

    def test_searching_blocks(self, tree: api.Tree) -> None:
        assert tree.current_block_index() == 0
        tree.blocks += [{"type": t, "index": i, "body": ""} for i, t in enumerate(["action", "error", "action"])]
        assert tree.current_block_index() == 3
        assert tree.find_last_block_of_type("action") == {"type": "action", "index": 2, "body": ""}
        assert tree.find_last_block_of_type("debug") is None


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(st.characters()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
)


class Color(enum.IntEnum):
    RED = 1


class Angry:
    def __repr__(self) -> str:
        raise RuntimeError("no")

    __str__ = __repr__


class TestPlainValues:
    def test_json_values_stay(self) -> None:
        value = {"a": [1, -2.5, "text", True, None, {"b": []}]}
        assert plain.plain(value) == value
        assert plain.plain((1, 2)) == [1, 2]
        assert plain.plain(OrderedDict(a=Color.RED)) == {"a": 1}
        assert plain.plain(weave.Score(0.5)) == 0.5

    def test_scalars_of_numpy_are_numbers(self) -> None:
        data = numpy.array([1.5, 0.25])
        assert plain.plain(data.mean() > 0.5) is True
        assert plain.plain({"error": numpy.float32(0.5), "n": [data.argmax()]}) == {"error": 0.5, "n": [0]}
        assert plain.plain(data.sum()) == 1.75
        assert plain.plain(numpy.array(7)) == 7
        assert plain.plain([numpy.float64("nan"), numpy.str_("a")]) == ["nan", "a"]
        assert "1.0" in plain.plain(numpy.longdouble(1))
        assert plain.plain(data) == "array([1.5 , 0.25])"

    @pytest.mark.parametrize(
        ("value", "shown"),
        [(math.nan, "nan"), (math.inf, "inf"), (-math.inf, "-inf"), ({1: 2}, "{1: 2}"), ({1, 2}, "{1, 2}")],
    )
    def test_other_values_become_their_repr(self, value: object, shown: str) -> None:
        assert plain.plain(value) == shown

    def test_reprs_contain_no_memory_addresses(self) -> None:
        assert plain.plain(object()) == "<object object>"
        assert (
            plain.plain(lambda: None)
            == "<function TestPlainValues.test_reprs_contain_no_memory_addresses.<locals>.<lambda>>"
        )

    def test_cyclic_and_huge_values_are_cut(self) -> None:
        cycle: list[object] = [1]
        cycle.append(cycle)
        assert plain.plain(cycle).startswith("[1, [1, ")
        for giant in ("x" * 10**6, ["x" * 1000] * 1000, list(range(10**5)), 10**5000, {"x": "y" * 10**6}):
            assert len(json.dumps(plain.plain(giant))) < 100_000

    def test_a_repr_that_raises_is_reported_and_not_raised(self) -> None:
        assert plain.plain([Angry()]) == ["<Angry instance>"]

    def test_text_is_changed_to_what_postgresql_can_store(self) -> None:
        assert plain.clean("a\x00b\ud800c") == "a\\x00b\\ud800c"
        assert len(plain.clean("x" * 10**6, 1000)) < 1100

    @given(ANYTHING)
    def test_any_value_can_become_json(self, value: object) -> None:
        text = json.dumps(plain.plain(value), allow_nan=False, ensure_ascii=False)
        assert "\x00" not in text.encode().decode()

    def test_tracebacks_show_only_the_block(self) -> None:
        source = "def f(self):\n    import json\n    return json.loads('{')\n"
        plain.remember_source("/app/block_3.py", source)
        space: dict[str, object] = {}
        exec(compile(source, "/app/block_3.py", "exec"), space)
        with pytest.raises(ValueError, match="Expecting") as caught:
            space["f"](None)  # type: ignore[operator]
        shown = plain.failure(caught.value, "callback", "/app")
        assert shown["type"] == "JSONDecodeError"
        assert "/app/block_3.py" in shown["traceback"]
        assert "return json.loads('{')" in shown["traceback"]
        assert "decoder.py" not in shown["traceback"]
        assert __file__ not in shown["traceback"]


class TestEvaluator:
    @pytest.fixture(autouse=True)
    def model(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """A model that answers yes with 0.8 of its mass if the prompt mentions gold, and with 0.1 otherwise."""
        asked: list[str] = []

        def answer(prompts: list[str]) -> list[tuple[float, float]]:
            asked.extend(prompts)
            return [(0.8, 0.2) if "gold" in prompt else (0.1, 0.9) for prompt in prompts]

        monkeypatch.setattr(weave, "ask", answer)
        return asked

    def test_one_question(self, model: list[str]) -> None:
        question = weave.make_simple_score_prompt("Is it {really} worth it?")
        scores = weave.simple_evaluate_outputs(question, ["gold {bar}", "lead"])
        assert scores == pytest.approx([0.8, 0.1])
        assert scores[0].item() == pytest.approx(0.8)
        assert model[0].startswith("gold {bar}\n")
        assert model[0].endswith("#q: Is it {really} worth it? ")

    def test_several_questions_give_their_mean_log_odds(self) -> None:
        questions = [weave.make_simple_score_prompt("Is it?"), weave.make_simple_score_prompt("Is it gold?")]
        expected = 1 / (1 + math.exp(-(math.log(8 / 2) + math.log(1 / 9)) / 2))
        assert weave.simple_evaluate_outputs(questions, "lead") == pytest.approx([expected])

    def test_bayes(self) -> None:
        scores = weave.simple_bayes_evaluate_outputs("Is it precious?", ["Is it yellow?"], ["gold", "lead"])
        assert scores == pytest.approx([0.8 * 0.8 / (0.8 * 0.8 + 0.2 * 0.8), 0.1 * 0.1 / (0.1 * 0.1 + 0.9 * 0.1)])

    def test_a_custom_template(self, model: list[str]) -> None:
        prompt = partial(weave.make_score_prompt_vllm, "<{response}>", "!", "")
        weave.simple_evaluate_outputs(prompt, "text")
        assert model == ["<text>!"]

    def test_templates_leave_the_prompt_out_of_the_response(self) -> None:
        template = "{prompt}|{response}|{parent_q}"
        text = weave.make_bayes_score_prompt_vllm(template, "!", "Once", "Is it a story? Yes.", "Once upon a time")
        assert text == "Once| upon a time|Is it a story? Yes.!"

    def test_no_texts(self) -> None:
        assert weave.simple_evaluate_outputs(weave.make_simple_score_prompt("Is it?"), []) == []


class TestFrames:
    @given(st.lists(st.dictionaries(st.text(), st.integers() | st.text()), max_size=5), st.integers(1, 20))
    def test_messages_may_arrive_in_pieces_of_any_size(self, messages: list[dict[str, object]], piece: int) -> None:
        data = b"".join(wire.frame(message, wire.MAX_BYTES_TO_BOX) for message in messages)
        reader = wire.Reader(wire.MAX_BYTES_TO_BOX)
        pieces = [data[i : i + piece] for i in range(0, len(data), piece)]
        assert [wire.parse(payload) for part in pieces for payload in reader.feed(part)] == messages

    def test_a_frame_that_is_too_long_is_refused_before_it_is_read(self) -> None:
        with pytest.raises(wire.BrokenFrame, match="allowed"):
            list(wire.Reader(100).feed(b"\x00\x00\x01\x00"))
        with pytest.raises(wire.BrokenFrame, match="allowed"):
            wire.frame({"text": "x" * 200}, 100)

    @pytest.mark.parametrize("payload", [b"", b"[1]", b"{", b"\xff", b"[" * 100_000])
    def test_nonsense_is_refused(self, payload: bytes) -> None:
        with pytest.raises(wire.BrokenFrame):
            wire.parse(payload)
