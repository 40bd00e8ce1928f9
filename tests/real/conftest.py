"""A real pretrained model for the tests of this folder: SmolLM2-135M-Instruct on a real vLLM, on the CPU, started by
`weavegen up --vllm`.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.installation import Installation, installed
from weavegen.pool.client import ModelClient

VENV = ROOT / os.environ.get("VLLM_VENV", ".venv-vllm")
FOLDER = VENV / "smollm2"
"""Made by `scripts/vllm.sh smollm`."""


@pytest.fixture(scope="session")
def installation() -> Iterator[Installation]:
    environ = {"WEAVEGEN_MODEL": None, "WEAVEGEN_LEASE": "15", "WEAVEGEN_MAX_ACTIVE": "4"}
    with installed("--vllm", FOLDER, timeout=600, WEAVEGEN_VLLM=str(VENV / "bin" / "python"), **environ) as one:
        yield one


@pytest.fixture(scope="session")
def url(installation: Installation) -> str:
    return str(installation.json("pool", "list")[0]["url"])


@pytest.fixture(scope="session")
def client(url: str) -> Iterator[ModelClient]:
    one = ModelClient(url, "EMPTY", None, timeout=120)
    yield one
    one.close()


@pytest.fixture(scope="session")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("papers")
    (folder / "openings.md").write_text("The corner wins most games against minimax. The edge wins least.\n")
    return folder
