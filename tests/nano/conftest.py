from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.nano_model import Reference, make
from weavegen_nano.engine import Engine
from weavegen_nano.llama import Llama
from weavegen_nano.texts import Texts


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model and its tokenizer."""
    return make(tmp_path_factory.mktemp("nano") / "tiny")


@pytest.fixture(scope="session")
def reference(folder: Path) -> Reference:
    return Reference(folder)


@pytest.fixture(scope="session")
def texts(folder: Path) -> Texts:
    return Texts(folder)


@pytest.fixture
def engine(folder: Path, texts: Texts) -> Iterator[Engine]:
    engine = Engine(Llama(folder), texts, slots=8, cache_tokens=2048)
    yield engine
    engine.close()
