"""Harbor tasks of the tests' own, and their images, without services."""

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from weavegen import config as configuration
from weavegen.folders import private
from weavegen.harbor import folder
from weavegen.harbor.verifier import Verdict, Verifier, image_of, limits_of, root_of, task_files
from weavegen.kernel.harbor import HarborTask
from weavegen.sandbox import command, image_root
from weavegen.sandbox.command import Ran

BASE = "weavegen.test/debian:12"
DOCKERFILE = f"""FROM {BASE}
RUN useradd --create-home --uid 1500 worker && mkdir /opt/tool
ENV PLACE=/work GREETING="hello there"
WORKDIR /work
COPY data/ /work/data/
"""
TOML = """schema_version = "1.4"

[metadata]
difficulty = "easy"
category = "arithmetic"

[agent]
timeout_sec = 60.0

[verifier]
timeout_sec = 60.0

[environment]
cpus = 1
memory_mb = 512
storage_mb = 200
"""
TEST_SH = """#!/bin/bash
if pytest /tests/test_outputs.py -rA; then
    echo 1 > /logs/verifier/reward.txt
else
    echo 0 > /logs/verifier/reward.txt
fi
"""
TEST_OUTPUTS = """from pathlib import Path


def test_answer():
    assert Path("/work/answer.txt").read_text().strip() == "42"
"""
FILES = {
    "task.toml": TOML,
    "instruction.md": "Write the answer to 6 * 7 into answer.txt.\n",
    "environment/Dockerfile": DOCKERFILE,
    "environment/data/numbers.txt": "6 7\n",
    "tests/test.sh": TEST_SH,
    "tests/test_outputs.py": TEST_OUTPUTS,
    "solution/solve.sh": "#!/bin/sh\necho 42 > answer.txt\n",
}

STEPS = {
    "task.toml": """schema_version = "1.4"
multi_step_reward_strategy = "mean"
[agent]
timeout_sec = 60
[[steps]]
name = "one"
min_reward = 1.0
[[steps]]
name = "two"
""",
    "environment/Dockerfile": f"FROM {BASE}\nWORKDIR /work\n",
    "tests/test.sh": TEST_SH,
    "steps/one/instruction.md": "Write 1 into one.txt",
    "steps/one/tests/test_outputs.py": "def test_one():\n    assert open('/work/one.txt').read() == '1'\n",
    "steps/one/solution/solve.sh": "#!/bin/sh\nprintf 1 > one.txt\n",
    "steps/two/instruction.md": "Write 2 into two.txt",
    "steps/two/tests/test_outputs.py": "def test_two():\n    assert open('/work/one.txt').read() == '1'\n"
    "    assert open('/work/two.txt').read() == '2'\n",
    "steps/two/solution/solve.sh": "#!/bin/sh\nprintf 2 > two.txt\n",
}
"""A task of two steps."""


def write_task(place: Path, changed: dict[str, str | None] | None = None, files: dict[str, str] = FILES) -> Path:
    """Write the folder of a task. `changed`: other contents by path; None: the file is missing."""
    for name, text in (files | (changed or {})).items():
        if text is not None:
            path = place / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return place


@dataclass
class Trial:
    """A task, its image, and what an agent did in it."""

    world: "World"
    task: HarborTask
    verifier: Verifier

    @property
    def changes(self) -> Path:
        return self.world.config.workspaces / str(self.verifier.trace_id) / "changes"

    def act(self, script: str, *, network: str = "none", user: str | None = None) -> Ran:
        """Run a shell script as the agent."""
        root = root_of(self.world.config, self.task, self.verifier.image, self.task.steps[0].agent, self.changes)
        return command.run(
            self.world.config,
            root if user is None else replace(root, user=user),
            ["/bin/bash", "-c", script],
            seconds=60,
            limits=limits_of(self.task),
            name=f"{self.verifier.trace_id}/agent",
            network=network,
        )

    def verify(self, *, trusted: bool = False) -> Verdict:
        (self.changes / "upper").mkdir(parents=True, exist_ok=True)
        return self.verifier.verify(self.changes / "upper", trusted=trusted)


class World:
    """A home of weavegen with images, and trials in it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.config = replace(configuration.load({"WEAVEGEN_HOME": str(home / "wg")}), sandbox="bubblewrap")
        private(self.config.home)
        private(self.config.workspaces)
        self.number = 0

    def trial(self, place: Path, step: int = 0) -> Trial:
        """A trial of the task in a folder."""
        self.number += 1
        task = folder.read_task(place)
        archive = folder.pack(place)
        files = task_files(self.config, f"{task.context[:16]}-{self.number}", lambda: archive)
        image = image_of(self.config, task, files)
        return Trial(self, task, Verifier(self.config, self.number, task, task.steps[step], image, files, "none"))

    def end(self) -> None:
        for place in (self.config.home / "images" / "store", *self.config.workspaces.glob("*/changes")):
            image_root.remove(place)
        shutil.rmtree(self.config.home, ignore_errors=True)
