"""The project's bootstrap files, run as `weavegen check` runs them: only the first tick, without a model."""

import re
from pathlib import Path
from typing import Any

import pytest

from simulation.policies import reader, story
from simulation.policies.situation import read
from weavegen.cli.jobs import failures_of
from weavegen.config import Config
from weavegen.engine.enqueueing import compile_bootstrap
from weavegen.kernel.steps import Executed, Op
from weavegen.sandbox.environment import dry_run
from weavegen.store.jobs import Order

ROOT = Path(__file__).parents[2]
OPS: tuple[Op, ...] = ("bootstrap", "evaluate", "begin")
POLICIES = {
    "haunted_mansion.py": story,
    "mars_colony.py": story,
    "book_report.py": reader,
    "reading_comprehension.py": reader,
}


def source(file: str) -> str:
    return (ROOT / "bootstraps" / file).read_text()


def first_tick(config: Config, text: str, params: dict[str, Any] | None = None) -> list[Executed]:
    compile_bootstrap(Order("bootstrap.py", text, params or {}))
    done = dry_run(config, text, params, ops=OPS)
    assert [failure for executed in done for failure in failures_of(executed)] == []
    assert len(done) == len(OPS)
    return done


@pytest.mark.parametrize("file", POLICIES)
def test_the_first_tick_runs_and_a_policy_can_read_its_views(config: Config, file: str) -> None:
    bootstrapped, evaluated, begun = first_tick(config, source(file))
    [main] = begun.subagents
    assert main.name == "main"
    assert main.schema
    assert [evaluation.value for evaluation in evaluated.evaluations if evaluation.scope == "tick"] == [True]
    assert bootstrapped.assertions

    shown = [re.sub("^", "# ", str(view.text), flags=re.MULTILINE) for view in begun.views]
    blocks = [("bootstrap", source(file)), *(("observation", text) for text in shown)]
    before = "".join(f"#startblock type: {type}\n{body}\n#endblock\n\n" for type, body in blocks)
    situation = read(before + "#startblock type: action\ndef action_")
    assert POLICIES[file].knows(situation)
    steps = re.compile("story_editor|file_entry|report_editor|turn_to|answer")
    written = [POLICIES[file].write(situation, 1, number) for number in range(10)]
    assert sum(bool(steps.search(text)) for text in written) > 6


@pytest.mark.parametrize(
    ("file", "params", "complaint"),
    [
        ("haunted_mansion.py", {"words": 3}, "words is 3: give 50 to 5000"),
        ("haunted_mansion.py", {"wrods": 300}, "no parameter 'wrods': give words, rooms"),
        ("mars_colony.py", {"entries": "five"}, "entries is 'five': give 2 to 8"),
        ("mars_colony.py", {"stores": True}, "stores is True: give 80 to 1000"),
        ("book_report.py", {"text": "other"}, "text is 'other': give ferry or rock_pool"),
        ("reading_comprehension.py", {"questions": 11}, "questions is 11: give 1 to 10"),
    ],
)
def test_wrong_parameters_are_refused_with_their_name(
    config: Config, file: str, params: dict[str, Any], complaint: str
) -> None:
    [done] = dry_run(config, source(file), params)
    assert done.error is not None
    assert done.error.type == "ValueError"
    assert complaint in done.error.message


def test_the_events_on_mars_derive_from_the_traces_seed(config: Config) -> None:
    [first], [second] = (dry_run(config, source("mars_colony.py"), ops=OPS[:1]) for _ in range(2))
    assert first.value == second.value


def test_the_example_in_the_documents_is_a_valid_bootstrap_file(config: Config) -> None:
    document = (ROOT / "docs" / "writing-bootstraps.md").read_text()
    [example] = re.findall(r'^```python\n("""The task.*?)^```$', document, re.DOTALL | re.MULTILINE)
    done = first_tick(config, example, {"most": 50})
    assert "It is from" in str(done[-1].views[0].text)
    assert done[-1].subagents[0].schema == {"questions": "integer"}
    [wrong] = dry_run(config, example, {"most": 1})
    assert wrong.error is not None
    assert "most is 1: give a number above 1" in wrong.error.message
