"""Harbor tasks in a whole installation: agents without a model, a conversation, several steps, and what is refused."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harbor.world import BASE, FILES, STEPS, write_task
from tests.support import ROOT
from tests.support.installation import Installation, installed
from tests.support.waiting import until
from weavegen.agents.harbor import Verification, verify
from weavegen.agents.program import Tick
from weavegen.errors import UsageError
from weavegen.harbor import folder
from weavegen.harbor.folder import read_task
from weavegen.kernel.replay import Cursor, Start
from weavegen.kernel.settings import Settings
from weavegen.kernel.steps import Evaluated, Executed
from weavegen.trace.blocks import BlockType

TABLE = FILES["task.toml"]
BROKEN: dict[str, tuple[dict[str, str | None], str]] = {
    "no instruction": ({"instruction.md": None}, "there is no instruction.md"),
    "empty instruction": ({"instruction.md": " \n"}, "instruction.md is empty"),
    "no more than a canary": ({"instruction.md": "<!-- canary 1-2 -->\n\n"}, "instruction.md is empty"),
    "no tests": ({"tests/test.sh": None}, "there is no tests/test.sh"),
    "no Dockerfile": ({"environment/Dockerfile": None}, "neither environment/Dockerfile nor docker_image"),
    "no Dockerfile and no name of an image": (
        {"environment/Dockerfile": None, "task.toml": "[environment]\ndocker_image = ''"},
        "neither environment/Dockerfile nor docker_image",
    ),
    "no TOML": ({"task.toml": "version = "}, "task.toml is not TOML"),
    "binary TOML": ({"task.toml": "version = '1.0'\0"}, "task.toml is not TOML"),
    "schema 2": ({"task.toml": "schema_version = '2.0'"}, "weavegen knows 1.x"),
    "wrong type": ({"task.toml": "[agent]\ntimeout_sec = 'long'"}, "Expected"),
    "negative time": ({"task.toml": "[agent]\ntimeout_sec = -1"}, "Expected"),
    "no time": ({"task.toml": "[verifier]\ntimeout_sec = 0"}, "Expected"),
    "infinite time": ({"task.toml": "[verifier]\ntimeout_sec = inf"}, "Expected"),
    "steps are a table": ({"task.toml": "[steps]\nname = 'a'"}, "Expected"),
    "compose": ({"environment/docker-compose.yaml": "services: {}"}, "several containers"),
    "windows": ({"task.toml": "[environment]\nos = 'windows'"}, "operating system 'windows'"),
    "gpu": ({"task.toml": "[environment]\ngpus = 1"}, "a GPU"),
    "tpu": ({"task.toml": "[environment.tpu]\ntype = 'v5'"}, "a TPU"),
    "health check": ({"task.toml": "[environment.healthcheck]\ncommand = 'true'"}, "a health check"),
    "MCP": (
        {"task.toml": "[[environment.mcp_servers]]\nname = 'a'\nurl = 'http://mcp:8000/mcp'"},
        "an MCP server that is not started by a command",
    ),
    "allow list": ({"task.toml": "[environment]\nnetwork_mode = 'allowlist'"}, "allowed hosts"),
    "allow list of a step": (
        {
            "task.toml": "[[steps]]\nname = 'a'\n[steps.agent]\nnetwork_mode = 'allowlist'",
            "steps/a/instruction.md": "a",
        },
        "allowed hosts",
    ),
    "network mode": ({"task.toml": "[environment]\nnetwork_mode = 'some'"}, "Invalid enum value"),
    "separate verifier": ({"task.toml": "[verifier]\nenvironment_mode = 'separate'"}, "container of its own"),
    "image and files": (
        {"environment/Dockerfile": None, "task.toml": "[environment]\ndocker_image = 'example.test/made:1'"},
        "files of environment/ that no Dockerfile copies",
    ),
    "files of a step": (
        {"task.toml": "[[steps]]\nname = 'a'", "steps/a/instruction.md": "a", "steps/a/workdir/setup.sh": "true"},
        "steps/NAME/workdir",
    ),
    "earlier conversation": ({"trajectory.json": "{}"}, "trajectory.json"),
    "left out files": ({"tests/data/.harborignore": "*.log"}, ".harborignore"),
    "relative workdir": ({"task.toml": "[environment]\nworkdir = 'work'"}, "not an absolute path"),
    "memory": ({"task.toml": "[environment]\nmemory = 'much'"}, "is not a size"),
    "own variable": ({"task.toml": "[verifier.env]\nA = '${WEAVEGEN_POOL_KEY:-}'"}, "only weavegen itself may read"),
    "missing variable": ({"task.toml": "[environment.env]\nKEY = '${NO_SUCH_VARIABLE}'"}, "needs $NO_SUCH_VARIABLE"),
    "odd variable": ({"task.toml": "[environment.env]\n'A B' = '1'"}, "not an environment variable"),
    "step without a name": ({"task.toml": "[[steps]]\nmin_reward = 1"}, "missing required field `name`"),
    "step outside": ({"task.toml": "[[steps]]\nname = '../a'"}, "Expected `str` matching"),
    "step without a folder": ({"task.toml": "[[steps]]\nname = 'a'"}, "step a: there is no instruction.md"),
    "two equal steps": ({"task.toml": "[[steps]]\nname = 'a'\n[[steps]]\nname = 'a'"}, "the same name"),
    "users of steps": (
        {
            "task.toml": "[[steps]]\nname = 'a'\n[[steps]]\nname = 'b'\n[steps.agent]\nuser = 'worker'",
            "steps/a/instruction.md": "a",
            "steps/b/instruction.md": "b",
        },
        "different users or variables",
    ),
    "reward strategy": ({"task.toml": "multi_step_reward_strategy = 'best'"}, "Invalid enum value"),
    "latin-1 instruction": ({"instruction.md": "caf\udce9"}, "not UTF-8"),
}


@pytest.fixture(scope="module")
def home(base: Path) -> Iterator[Installation]:
    with installed("--model", "sim") as found:
        added = found.cli("images", "add", BASE, base)
        assert added.returncode == 0, added.stderr
        yield found


def rewards(home: Installation, job: int) -> list[object]:
    rows = home.sql("select status, returned from traces where job_id = :job order by number", job=job)
    assert all(status == "ended" for status, _ in rows), home.sql("select status, failure from traces")
    return [returned["reward"] for _, returned in rows]


def run(home: Installation, *options: str | Path) -> int:
    done = home.cli("run", *options)
    assert done.returncode == 0, (done.stdout, done.stderr)
    [[job]] = home.sql("select max(id) from jobs")
    return int(job)


@pytest.mark.parametrize("name", ["instruction.md", "tests", "environment"])
def test_a_link_out_of_a_task_is_refused(tmp_path: Path, name: str) -> None:
    place = write_task(tmp_path / "task")
    (place / name).rename(tmp_path / "elsewhere")
    (place / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match=f"task: {name} is a link out of the task"):
        read_task(place)
    (tmp_path / "elsewhere").rename(place / "inside")
    (place / name).unlink()
    (place / name).symlink_to("inside")
    read_task(place)


def test_an_image_that_exists_has_priority_over_a_dockerfile(tmp_path: Path) -> None:
    place = write_task(tmp_path / "task", {"task.toml": TABLE + "docker_image = 'example.test/made:1'\n"})
    assert read_task(place).image == "example.test/made:1"


def test_agents_do_not_see_canaries(tmp_path: Path) -> None:
    first = "\ufeff<!-- BENCHMARK DATA: canary GUID 1-2 -->\n# Canary 1-2\r\n\n"
    text = "# Birds\n\nFind the canary.\n\n# canary\n"
    place = write_task(tmp_path / "task", {"instruction.md": first + text})
    assert read_task(place).steps[0].instruction == text.strip()


def test_both_of_two_hard_links_are_packed(tmp_path: Path) -> None:
    place = write_task(tmp_path / "task")
    (place / "tests" / "same.py").hardlink_to(place / "tests" / "test_outputs.py")
    folder.unpack(folder.pack(place), tmp_path / "unpacked")
    same = (tmp_path / "unpacked" / "tests" / "same.py").read_text()
    assert same == (place / "tests" / "test_outputs.py").read_text()


def test_agents_without_a_model(home: Installation, tmp_path: Path) -> None:
    place = write_task(tmp_path / "tasks" / "sum")
    other = {"environment/Dockerfile": FILES["environment/Dockerfile"] + "RUN echo 42 > answer.txt\n"}
    write_task(tmp_path / "tasks" / "solved", other)
    assert rewards(home, run(home, "--harbor", tmp_path / "tasks", "--agent", "nop")) == [1.0, 0.0]
    job = run(home, "--harbor", place, "--agent", "oracle", "-n", "3")
    assert rewards(home, job) == [1.0, 1.0, 1.0]
    made = home.json("images", "list")["images"]
    assert {"solved", "sum"} <= {image["name"] for image in made}
    [[protected, value]] = home.sql(
        "select protected, value from evaluations e join traces t on t.id = e.trace_id "
        "where t.job_id = :job and t.number = 1",
        job=job,
    )
    assert (protected, value) == (True, 1.0)
    assert home.sql("select metadata ->> 'category' from harbor_tasks where name = 'sum'") == [("arithmetic",)]
    assert home.cli("audit").returncode == 0
    assert not list((home.home / "workspaces").glob("*/changes")), "the changes of ended traces are removed"


def test_a_base_that_is_given_where_a_job_is_enqueued(home: Installation, base: Path, tmp_path: Path) -> None:
    dockerfile = FILES["environment/Dockerfile"].replace(BASE, "weavegen.test/given:1")
    place = write_task(tmp_path / "given", {"environment/Dockerfile": dockerfile})
    job = run(home, "--harbor", place, "--agent", "oracle", "--image", f"weavegen.test/given:1={base}")
    assert rewards(home, job) == [1.0]


def test_react_and_weave(home: Installation, tmp_path: Path) -> None:
    """The simulated model has no policy for the task: its traces end, and are verified."""
    place = write_task(tmp_path / "sum")
    for agent in ("react", "weave"):
        job = run(home, "--harbor", place, "--agent", agent, "--ticks", "2", "--seed", "1")
        assert rewards(home, job) == [0.0]
        assert home.sql("select ended_because from traces where job_id = :job", job=job)[0][0] in ("returned", "ticks")
    assert home.cli("audit").returncode == 0


def test_a_fork_has_the_task(home: Installation, tmp_path: Path) -> None:
    job = run(home, "--harbor", write_task(tmp_path / "sum"), "--agent", "weave", "--ticks", "2", "--seed", "1")
    [[trace, at]] = home.sql(
        "select t.id, max(b.index) from traces t join blocks b on b.trace_id = t.id where t.job_id = :job group by 1",
        job=job,
    )
    forked = home.cli("fork", trace, "--at", at)
    assert forked.returncode == 0, forked.stderr
    [[fork]] = home.sql("select max(id) from jobs")
    assert home.cli("watch", fork).returncode == 0
    assert rewards(home, fork) == [0.0]


def test_mcp_server_of_a_task_runs_in_its_image(home: Installation, tmp_path: Path) -> None:
    server = (ROOT / "tests" / "support" / "mcp_stdio.py").read_text()
    table = (
        "[[environment.mcp_servers]]\nname = 'own'\ntransport = 'stdio'\ncommand = 'python3'\nargs = ['/opt/own.py']\n"
    )
    files = FILES | {
        "task.toml": TABLE + table,
        "environment/Dockerfile": FILES["environment/Dockerfile"] + "COPY own.py /opt/own.py\n",
        "environment/own.py": server,
    }
    place = write_task(tmp_path / "served", files=files)
    for agent in ("react", "weave"):
        job = run(home, "--harbor", place, "--agent", agent, "--ticks", "1", "--seed", "1")
        [[tools]] = home.sql(
            "select s.tools from toolsets s join blocks b on b.toolset_id = s.id join traces t on t.id = b.trace_id"
            " where t.job_id = :job",
            job=job,
        )
        assert "mcp__own__echo" in tools
        assert rewards(home, job) == [0.0]


def test_several_steps(home: Installation, tmp_path: Path) -> None:
    place = write_task(tmp_path / "steps", files=STEPS)
    job = run(home, "--harbor", place, "--agent", "oracle")
    assert rewards(home, job) == [1.0]
    texts = home.sql(
        "select body from blocks b join traces t on t.id = b.trace_id where job_id = :j and type = 'user'", j=job
    )
    assert [text for (text,) in texts] == ["Write 1 into one.txt", "Write 2 into two.txt"]
    assert rewards(home, run(home, "--harbor", place, "--agent", "nop")) == [0.0]
    shared: dict[str, str | None] = {"solution/solve.sh": "#!/bin/sh\nprintf 1 > one.txt\nprintf 2 > two.txt\n"}
    shared |= {name: None for name in STEPS if "solution" in name}
    place = write_task(tmp_path / "shared", shared, files=STEPS)
    assert rewards(home, run(home, "--harbor", place, "--agent", "oracle")) == [1.0]


@pytest.mark.parametrize("strategy", ["mean", "final"])
def test_steps_after_a_missed_minimum_do_not_count(home: Installation, tmp_path: Path, strategy: str) -> None:
    table = f"multi_step_reward_strategy = '{strategy}'\n[[steps]]\nname = 'a'\nmin_reward = 1\n"
    files: dict[str, str | None] = {f"steps/{name}/instruction.md": "Do nothing." for name in "abc"}
    files |= {"task.toml": table + "[[steps]]\nname = 'b'\n[[steps]]\nname = 'c'\n"}
    files |= {"tests/test.sh": "#!/bin/sh\necho 0.5 > /logs/verifier/reward.txt\n"}
    place = write_task(tmp_path / strategy, files)
    assert rewards(home, run(home, "--harbor", place, "--agent", "nop")) == [0.5]


@pytest.mark.parametrize(("strategy", "reward"), [("mean", 0.5), ("final", 0.0)])
def test_steps_for_which_no_budget_was_left_count_zero(tmp_path: Path, strategy: str, reward: float) -> None:
    table = STEPS["task.toml"].replace("mean", strategy)
    task = read_task(write_task(tmp_path / "task", {"task.toml": table}, files=STEPS))
    checked = Executed(evaluations=(Evaluated(title="reward", scope="task", value=1.0),))
    tick = Tick(Settings(), Cursor(Start(1, 9, 0.0, 0.0, 2, BlockType.ASSISTANT)))
    program = verify(tick, task, Verification("ticks", None, 0, ()))
    next(program)
    with pytest.raises(StopIteration) as ended:
        program.send(checked)
    found = ended.value.value.returned
    assert (found["reward"], found["success"]) == (reward, False)


def test_nine_steps(home: Installation, tmp_path: Path) -> None:
    """The end of the agent's processes before each verification does not count as their death."""
    names = "abcdefghi"
    files: dict[str, str | None] = {f"steps/{name}/instruction.md": "Do nothing." for name in names}
    files["task.toml"] = TABLE + "".join(f"[[steps]]\nname = '{name}'\n" for name in names)
    place = write_task(tmp_path / "nine", {"tests/test.sh": "#!/bin/sh\necho 1 > /logs/verifier/reward.txt\n", **files})
    assert rewards(home, run(home, "--harbor", place, "--agent", "react", "--seed", "1")) == [1.0]


def test_making_the_image_is_no_time_of_the_agent(home: Installation, tmp_path: Path) -> None:
    changed = {
        "environment/Dockerfile": FILES["environment/Dockerfile"] + "RUN sleep 25\n",
        "task.toml": TABLE.replace("[agent]\ntimeout_sec = 60.0", "[agent]\ntimeout_sec = 20.0"),
    }
    job = run(
        home,
        "--harbor",
        write_task(tmp_path / "slow-image", changed),
        "--agent",
        "weave",
        "--ticks",
        "1",
        "--seed",
        "1",
    )
    assert home.sql("select ended_because from traces where job_id = :job", job=job) in ([("ticks",)], [("returned",)])


@pytest.mark.parametrize("agent", ["nop", "react"])
def test_image_that_can_not_be_made(home: Installation, tmp_path: Path, agent: str) -> None:
    """The model of react calls tools, and reads nothing of the build."""
    place = write_task(tmp_path / "fails", {"environment/Dockerfile": f"FROM {BASE}\nRUN echo too bad; exit 3\n"})
    done = home.cli("run", "--harbor", place, "--agent", agent, "--seed", "1")
    assert done.returncode == 1
    [[kind, failure]] = home.sql("select failure_kind, failure from traces order by id desc limit 1")
    assert kind == "environment"
    assert "RUN echo too bad; exit 3" in failure
    answered = "select count(*) from blocks where type = 'tool' and trace_id = (select max(id) from traces)"
    assert home.sql(answered) == [(0,)]


def test_time_limits_are_multiplied(home: Installation, tmp_path: Path) -> None:
    files = {"environment/Dockerfile": FILES["environment/Dockerfile"] + "RUN sleep 4\n"}
    files["task.toml"] = FILES["task.toml"].replace("[environment]", "[environment]\nbuild_timeout_sec = 2.0")
    place = write_task(tmp_path / "slow", files)
    assert "longer than 2 seconds" in home.cli("images", "build", place).stdout
    assert rewards(home, run(home, "--harbor", place, "--agent", "oracle", "--timeout-multiplier", "30")) == [1.0]


@pytest.mark.parametrize(
    ("options", "seconds"), [((), 60.0), (("--timeout-multiplier", "2"), 120.0), (("--set", "callback_seconds=9"), 9.0)]
)
def test_an_operation_may_take_as_long_as_the_agent(
    home: Installation, tmp_path: Path, options: tuple[str, ...], seconds: float
) -> None:
    job = home.json("enqueue", "--harbor", write_task(tmp_path / "sum"), "--agent", "nop", *options)["job"]
    assert home.sql("select settings from jobs where id = :job", job=job) == [({"callback_seconds": seconds},)]


@pytest.mark.parametrize("name", BROKEN)
def test_broken_task(name: str, home: Installation, tmp_path: Path) -> None:
    changed, reason = BROKEN[name]
    place = tmp_path / "task"
    write_task(place, {path: text for path, text in changed.items() if text is None or text.isascii()})
    for path, text in changed.items():
        if text is not None and not text.isascii():
            (place / path).write_bytes(text.encode("utf-8", "surrogateescape"))
    before = home.sql("select count(*) from jobs")
    done = home.cli("enqueue", "--harbor", place, "--agent", "nop")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert reason in done.stderr
    assert "task" in done.stderr
    assert home.sql("select count(*) from jobs") == before


def test_all_tasks_that_can_not_run_are_counted_by_reason_or_left_out(home: Installation, tmp_path: Path) -> None:
    write_task(tmp_path / "sum")
    write_task(tmp_path / "silent", {"tests/test.sh": None})
    for name in "abcde":
        write_task(tmp_path / name, {"task.toml": "[environment]\ngpus = 1"})
    options = ("enqueue", "--harbor", tmp_path, "--agent", "nop")
    refused = home.cli(*options)
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "6 of 7 tasks can't run: 5 because the task asks for a GPU, which is not supp" in refused.stderr
    assert "(such as a, b, c); 1 because there is no tests/test.sh (such as silent); --skip-unsup" in refused.stderr
    done = home.cli(*options, "--skip-unsupported", "--json")
    left_out = [line.split(": ")[2] for line in done.stderr.splitlines() if "left out: " in line]
    assert left_out == ["a", "b", "c", "d", "e", "silent"]
    names = "select h.name from traces t join harbor_tasks h on h.id = t.harbor_task_id where t.job_id = :job"
    assert home.sql(names, job=json.loads(done.stdout)["job"]) == [("sum",)]


def test_tasks_that_allow_a_network_which_the_job_lacks_are_named(home: Installation, tmp_path: Path) -> None:
    """Their tests may install programs, and then give no reward. Whoever chooses the network is not told."""
    write_task(tmp_path / "public")
    write_task(tmp_path / "closed", {"task.toml": TABLE + "allow_internet = false\n"})
    options = ("enqueue", "--harbor", tmp_path, "--agent", "nop", "-n", "2")
    told = home.cli(*options).stderr
    assert "1 of 2 tasks (such as public) let their tests use the network: give --network host" in told
    assert told.count("\n") == 1
    for network in ("none", "host"):
        assert home.cli(*options, "--network", network).stderr == ""
    assert home.cli("enqueue", "--harbor", tmp_path / "closed", "--agent", "nop").stderr == ""


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--agent", "research"], "takes no Harbor tasks"),
        (["--agent", "nop", "--task", "x"], "one of them"),
        (["--agent", "nop", "--image", "x"], "give NAME=FOLDER"),
        (["--agent", "nop", "--image", "x=/nowhere"], "does not exist"),
        (["--agent", "nop", "--image", "BAD NAME=/"], "can't be the name of an image"),
    ],
)
def test_wrong_options(options: list[str], reason: str, home: Installation, tmp_path: Path) -> None:
    place = write_task(tmp_path / "task")
    done = home.cli("enqueue", "--harbor", place, *options)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert reason in done.stderr


def test_folder_without_tasks(home: Installation, tmp_path: Path) -> None:
    done = home.cli("enqueue", "--harbor", tmp_path, "--agent", "nop")
    assert done.returncode == 2
    assert "there is no task.toml" in done.stderr
    done = home.cli("enqueue", "--task", "x", "--agent", "oracle")
    assert done.returncode == 2
    assert "give --harbor" in done.stderr


def test_images_are_made_ahead_and_removed(home: Installation, tmp_path: Path) -> None:
    write_task(tmp_path / "tasks" / "ahead", {"environment/data/numbers.txt": "8 9\n"})
    write_task(tmp_path / "tasks" / "bad", {"environment/Dockerfile": f"FROM {BASE}\nRUN false\n"})
    done = home.cli("images", "build", tmp_path / "tasks", "--json")
    assert done.returncode == 1
    result = json.loads(done.stdout)
    assert list(result["made"]) == ["ahead"]
    assert "RUN false" in result["failed"]["bad"]

    def pruned() -> bool:
        """False while traces that other tests enqueued still run: their images stay, with what these are made of."""
        home.json("images", "prune")
        return not home.json("images", "list")["images"]

    until(pruned, "prune left images that nothing uses")
    assert home.cli("images", "build", tmp_path / "tasks" / "ahead").returncode == 0
