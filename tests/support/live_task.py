"""A bootstrap file's task in a real box, after its first tick: act in it, look at its views, have it graded."""

import itertools
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support import ROOT
from weavegen import config as configuration
from weavegen.channels.exchange import Chat, private_channels
from weavegen.config import Config
from weavegen.kernel.steps import Execute, Executed
from weavegen.sandbox.environment import Environment, remove
from weavegen.sandbox.grading import Grader, asked, declared
from weavegen.sandbox.providers import Limits
from weavegen.trace.blocks import BlockType

LIMITS = Limits(seconds=30.0, grace=5.0)


class LiveTask:
    """The task of a bootstrap's text, as a trace with this seed and these parameters has it."""

    def __init__(
        self, config: Config, environment: Environment, source: str, seed: int, params: dict[str, Any], chat: Chat
    ):
        self.config, self.environment, self.source, self.seed, self.params = config, environment, source, seed, params
        self.chat = chat
        self.steps = itertools.count(1)
        self.before: Executed | None = None
        self.first = self.execute(Execute(op="bootstrap", source=source))

    def execute(self, step: Execute) -> Executed:
        executed = self.environment.execute(next(self.steps), step, chat=self.chat)
        assert executed.error is None, executed.error
        return executed

    def act(self, body: str) -> Any:
        """Run an action with this body. Returns what it returns."""
        lines = "".join(f"    {line}\n" for line in body.splitlines())
        source = f"def action_test(self):\n{lines}\nself.add_action('Test', action_test)\n"
        return self.execute(Execute(op="run", type=BlockType.ACTION, source=source)).value

    def views(self) -> dict[str, str]:
        """The views at the beginning of a tick, by title."""
        shown = self.execute(Execute(op="begin")).views
        assert [view.error for view in shown] == [None] * len(shown)
        return {view.title: str(view.text) for view in shown}

    def graded(self) -> dict[str, Any]:
        """The verdicts of the protected evaluations at the end of a tick, by the name of their function."""
        executed = self.execute(Execute(op="evaluate", source=asked(declared(self.source))))
        grader = Grader(self.config, 1, LIMITS, self.source, self.seed, self.params, before=self.before)
        self.before = grader.grade(self.environment.handle, executed)
        found = {evaluated.title: evaluated for evaluated in self.before.evaluations}
        verdicts = {}
        for evaluation in declared(self.source):
            evaluated = found[evaluation.title]
            assert evaluated.protected
            assert evaluated.error is None, evaluated.error
            verdicts[evaluation.callback] = evaluated.cause or evaluated.value
        return verdicts

    def tick_evaluations(self) -> list[Any]:
        """The values of the evaluations that the file registers for its first tick."""
        executed = self.execute(Execute(op="evaluate", source=asked(declared(self.source))))
        assert [one.error for one in executed.evaluations] == [None] * len(executed.evaluations)
        return [one.value for one in executed.evaluations if one.scope == "tick"]


@contextmanager
def live_task(file: str, seed: int = 7, **params: Any) -> Iterator[LiveTask]:
    """The task of a file of bootstraps/."""
    with started((ROOT / "bootstraps" / file).read_text(), seed, params) as task:
        yield task


@contextmanager
def started(
    source: str, seed: int, params: dict[str, Any], chat: Chat | None = None, packages: Path | None = None
) -> Iterator[LiveTask]:
    """The task of a text. `packages`: a folder of packages that its code can import."""
    with tempfile.TemporaryDirectory(prefix="weavegen-test-") as home:
        Path(home).chmod(0o711)
        config = configuration.load({"WEAVEGEN_HOME": home})
        environment = Environment.start(config, 1, seed=seed, params=params, packages=packages, limits=LIMITS)
        try:
            yield LiveTask(config, environment, source, seed, params, chat or private_channels())
        finally:
            remove(config, 1)
