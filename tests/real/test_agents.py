"""Every agent, written by a real pretrained model. It is too small to succeed, so nothing here asks for success: only
that no trace fails for a reason of weavegen's, and that what is recorded is whole.
"""

import ast
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from tests.support import ROOT
from tests.support.installation import Installation
from tests.support.nano_server import serving
from tests.support.rendering import render_trace
from tests.support.waiting import until
from weavegen.pool import capabilities
from weavegen.pool.client import ModelClient
from weavegen.services import vllm
from weavegen.trace.render import parse_trace
from weavegen_nano import WEIGHTS

SMALL = ("rounds=[2]", "max_tokens=96", "query_samples=2", "query_tokens=24", "attempts=2", "context=4096")
"""On two cores a token takes 0.1 to 0.4 s, depending on the length of the prompt."""
BLOCKS = [word for one in SMALL for word in ("--set", one)]
MESSAGES = ["--set", "assistant.max_tokens=200", "--set", "steps=3"]
FILES = ROOT / "bootstraps"
CASES: dict[str, tuple[list[str | Path], list[str]]] = {
    "weave": ([FILES / "sums.py", FILES / "tictactoe.py"], [*BLOCKS, "--ticks", "1"]),
    "react": ([FILES / "sums.py", "Write the names of three colours into colours.txt."], MESSAGES),
    "planning": ([FILES / "sums.py", FILES / "tictactoe.py"], [*BLOCKS, "--ticks", "1"]),
    "research": (["Which opening wins most?", "Which opening wins least?"], MESSAGES),
    "funsearch": (
        [FILES / "tasks" / "cap_set.json", FILES / "tasks" / "bin_packing.json"],
        ["--set", "assistant.max_tokens=192", "--ticks", "1"],
    ),
    "toolsmith": (
        ["How many words has one two three?", "Which word is longest in one two three?"],
        ["--set", "assistant.max_tokens=160"],
    ),
}
PATIENCE = 900.0
"""Seconds for the traces of one agent."""


@pytest.fixture(scope="module", params=CASES)
def job(request: pytest.FixtureRequest, installation: Installation, documents: Path) -> tuple[str, int]:
    """The finished traces of one agent: its name, and the number of its job."""
    agent = str(request.param)
    given, options = CASES[agent]
    tasks = [word for one in given if isinstance(one, str) for word in ("--task", one)]
    files = [one for one in given if isinstance(one, Path)]
    more = ["--documents", documents] if agent == "research" else []
    number = installation.json("enqueue", *files, "--agent", agent, *tasks, *options, *more, "--seed", "1")["job"]
    installation.wait(number, PATIENCE)
    return agent, int(number)


@pytest.mark.timeout(1000)
def test_no_trace_fails_for_a_reason_of_ours(installation: Installation, job: tuple[str, int]) -> None:
    agent, number = job
    rows = installation.sql("select status, failure_kind, failure from traces where job_id = :j", j=number)
    assert len(rows) == 2
    for status, kind, failure in rows:
        # A conversation may fail because it fills the model's context; nothing else may end a trace early.
        assert status == "ended" or kind == "model", (agent, kind, failure)
    [[sampled]] = installation.sql("select sum(sampled_tokens) from traces where job_id = :j", j=number)
    assert sampled > 0


@pytest.mark.timeout(1000)
def test_every_trace_is_a_python_file(installation: Installation, job: tuple[str, int]) -> None:
    for [trace] in installation.sql("select id from traces where job_id = :j", j=job[1]):
        text = installation.cli("show", str(trace)).stdout
        ast.parse(text)
        assert render_trace(parse_trace(text)) == text


@pytest.mark.timeout(1000)
def test_tokens_decode_to_the_text(installation: Installation, client: ModelClient, job: tuple[str, int]) -> None:
    """The ids of a written block, as they were sampled, are the beginning or the whole of what was recorded."""
    query = """
        select c.text, c.token_ids from candidates c join steps s on s.id = c.step_id
        join traces t on t.id = s.trace_id join blocks b on b.candidate_id = c.id
        where t.job_id = :j and c.token_ids is not null order by c.id limit 40
    """
    rows = installation.sql(query, j=job[1])
    assert rows
    for text, ids in rows:
        decoded = client.decode(ids).lstrip()
        sampled = text.split("def action_")[-1].split("def eval_")[-1].lstrip('"').lstrip()
        assert decoded.replace("<|im_end|>", "").rstrip()[:40] in text or sampled[:40] in decoded, (text, decoded)


def test_the_template_is_the_models_own(installation: Installation, job: tuple[str, int]) -> None:
    query = "select m.texts from jobs j join templates m on m.id = j.template_id where j.id = :j"
    [[texts]] = installation.sql(query, j=job[1])
    assert texts["block_open"].startswith("<|im_start|>system\n")
    assert texts["block_open"].endswith("<|im_start|>user\n")
    assert texts["block_close"] == "<|im_end|>\n<|im_start|>assistant\n"
    assert texts["assistant_close"] == "<|im_end|>\n"
    assert not texts["bos"]


def test_the_server_lacks_nothing_but_adapters(url: str) -> None:
    has = capabilities.probe(url, "EMPTY")
    assert [line.partition(":")[0] for line in capabilities.lacks(has)] == ["adapters"]
    assert has.logprobs == 128
    assert has.length == 8192
    assert has.chat


def test_the_audit_is_clean(installation: Installation) -> None:
    done = installation.cli("audit")
    assert done.returncode == 0, done.stdout


@pytest.mark.timeout(900)
def test_one_model_writes_and_another_judges(installation: Installation) -> None:
    with serving(WEIGHTS) as url:
        installation.json("pool", "add", url)
        models = ("--model", "agent=smollm2", "--model", "evaluator=weavegen-nano")
        few = ("--set", "rounds=[1]", "--set", "max_tokens=64", "--set", "blocks=12", "--seed", "2")
        short = ("--set", "context=4096")  # reading a prompt takes most of the time
        job = installation.json("enqueue", FILES / "sums.py", *few, *short, *models)["job"]
        installation.wait(job, 600)
        query = """
            select distinct s.kind, p.model from prompts p join steps s on s.id = p.step_id
            join traces t on t.id = s.trace_id where t.job_id = :j
        """
        assert set(installation.sql(query, j=job)) == {("sample", "smollm2"), ("score", "weavegen-nano")}
        installation.json("pool", "remove", url)


def test_a_server_that_dies_is_started_again_and_down_leaves_nothing(installation: Installation) -> None:
    [before] = vllm.servers(installation.config)
    family = [psutil.Process(before.pid), *psutil.Process(before.pid).children(recursive=True)]
    psutil.Process(before.pid).kill()
    # The supervisor registers the new process first, then counts the restart.
    until(lambda: [one.restarts for one in vllm.servers(installation.config)] == [1], "a restart")
    [after] = vllm.servers(installation.config)
    assert after.url == before.url
    assert after.pid != before.pid
    family += [psutil.Process(after.pid), *psutil.Process(after.pid).children(recursive=True)]
    assert installation.cli("down").returncode == 0
    assert not [process for process in family if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]
