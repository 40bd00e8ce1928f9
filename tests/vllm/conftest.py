"""Real vLLM servers for the tests of this folder. The tests fail if they can't start; none is skipped."""

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

from tests.support import ROOT
from tests.support.vllm_server import SCRIPT, SLOTS, Forward, Server, StartServer
from weavegen.pool.client import ModelClient

PYTHON = ROOT / os.environ.get("VLLM_VENV", ".venv-vllm") / "bin" / "python"


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the tiny model."""
    folder = tmp_path_factory.mktemp("tiny-model")
    made = subprocess.run(["bash", str(SCRIPT), "model", str(folder)], capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    return folder


@pytest.fixture(scope="session")
def start_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartServer]:
    """`start_server(model, *flags, wait=True)` -> Server. With `wait=False` it returns at once, so that two start
    together.

    All servers are killed at the end of the session. A module that needs its own server kills it earlier.
    """
    with ExitStack() as servers:

        def start(model: Path, *flags: str, wait: bool = True) -> Server:
            server = Server(model, tmp_path_factory.mktemp("vllm") / "log", flags)
            servers.callback(server.kill)
            if wait:
                server.wait()
            return server

        yield start


@pytest.fixture(scope="session")
def both(model: Path, start_server: StartServer) -> tuple[Server, Server]:
    """Two servers of the same model. They start together, because a start uses one core for half a minute."""
    own = ("--max-num-seqs", str(SLOTS))
    first = start_server(model, *own, wait=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_ALLOW_RUNTIME_LORA_UPDATING", "True")
        second = start_server(model, *own, "--enable-lora", "--max-lora-rank", "8", wait=False)
    for one in (first, second):
        one.wait()
    return first, second


@pytest.fixture(scope="session")
def server(both: tuple[Server, Server]) -> Server:
    """The server that most tests share. It has `SLOTS` slots."""
    return both[0]


@pytest.fixture(scope="session")
def second(both: tuple[Server, Server]) -> Server:
    """A second one, started as in docs/tuning.md, so that adapters can be loaded."""
    return both[1]


@pytest.fixture(scope="session")
def client(server: Server) -> Iterator[ModelClient]:
    client = ModelClient(server.url, "EMPTY", None, timeout=120)
    yield client
    client.close()


@pytest.fixture(scope="session")
def forward(model: Path) -> Forward:
    """Lists of token ids -> logprobs of a plain forward pass with the same weights; see scripts/tiny_model.py."""

    def run(sequences: Sequence[Sequence[int]]) -> dict[str, list[list[float]]]:
        command = [str(PYTHON), str(ROOT / "scripts" / "tiny_model.py"), "forward", str(model)]
        told = json.dumps([list(ids) for ids in sequences])
        done = subprocess.run(command, input=told, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return msgspec.json.decode(done.stdout, type=dict[str, list[list[float]]])

    return run
