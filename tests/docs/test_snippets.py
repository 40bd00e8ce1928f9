"""Code in the documents that is not for a shell is valid: Python, SQL, JSON and others; and names of settings."""

import ast
import configparser
import importlib
import json
import re
import shlex
from collections.abc import Iterator

import pytest
import yaml
from typer.main import get_command

from tests.docs.reading import DOCUMENTS, ROOT, Code, code
from tests.support.deployment import FLOWER_VARIABLES, compose_variables, environment_variables
from weavegen.agents import AGENTS
from weavegen.cli.app import app
from weavegen.cli.jobs import by_type, pairs
from weavegen.config import Config
from weavegen.database import Database
from weavegen.kernel.settings import Settings, settings
from weavegen.sandbox.environment import dry_run
from weavegen.services import fleet
from weavegen.store import reports, session
from weavegen.trace.blocks import BlockType

ALL = [one for document in DOCUMENTS for one in code(document)]
ASKED = "docs/corpus.md"
"""Documents whose queries tests/corpus/test_corpus_docs.py runs, with a comparison of their answers."""
BLOCKS = [
    one
    for one in ALL
    if one.language != "inline" and not one.is_shell and not (one.path == ASKED and one.language == "sql")
]
OURS = ("weavegen", "bootstraps", "tasks")
BEGINNINGS = {
    "python": r"import |from |\w+ = agent\.|\"\"\"",
    "json": r"\{",
    "sql": r"select ",
    "options": r"--",
    "yaml": r"\w+:\n",
    "ini": r"\[",
}
"""The languages of blocks that do not name one, by their beginning."""
ACTION = "def action_rest(self): pass\nself.add_action('Rest', action_rest)"
"""Text that every bootstrap file contains."""


def language(block: Code) -> str:
    """The language of a block; "" for a drawing, a formula or output."""
    if block.language:
        return block.language
    return next((name for name, begin in BEGINNINGS.items() if re.match(begin, block.text)), "")


def snippets(*languages: str) -> pytest.MarkDecorator:
    found = [block for block in BLOCKS if language(block) in languages]
    assert found, languages
    return pytest.mark.parametrize("block", found, ids=lambda block: f"{block.path}:{block.line}")


@pytest.fixture
def reader(database: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    """A database for somebody who runs Python in the project's folder."""
    monkeypatch.setenv("DATABASE_URL", database)
    monkeypatch.chdir(ROOT)
    session.database.cache_clear()
    yield session.database()
    session.database().close()
    session.database.cache_clear()


@snippets("python")
def test_python(block: Code) -> None:
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in OURS:
            module = importlib.import_module(str(node.module))
            assert all(hasattr(module, name.name) for name in node.names), ast.unparse(node)


def test_jobs_are_enqueued_from_python_as_documented(reader: Database) -> None:
    [text] = [block.text for block in BLOCKS if "job = weavegen.enqueue(" in block.text]
    names: dict[str, object] = {}
    exec(text, names)
    with reader.connect() as conn:
        assert [row.traces for row in reports.jobs(conn, names["job"])] == [1000]


@pytest.mark.parametrize("tool", ["editor", "nano"])
def test_tools_are_used_as_documented(tool: str, config: Config) -> None:
    """In a box, as a bootstrap file. (Messages go to people: tests/acceptance/test_conversation.py.)"""
    [text] = [block.text for block in BLOCKS if f"from tools.{tool} import" in block.text]
    assert [done.error for done in dry_run(config, text + ACTION)] == [None]


@snippets("sql")
def test_sql(block: Code, reader: Database) -> None:
    with reader.connect() as conn:
        reports.select(conn, block.text, 60, None)


@snippets("json")
def test_json(block: Code) -> None:
    assert isinstance(json.loads(block.text.replace("{...}", "{}")), dict)


@snippets("yaml", "ini", "toml", "options")
def test_other_languages(block: Code) -> None:
    match language(block):
        case "yaml":
            assert isinstance(yaml.safe_load(block.text), dict)
        case "ini":
            configparser.ConfigParser(strict=False, interpolation=None).read_string(block.text)
        case "options":
            enqueue = get_command(app).commands["enqueue"]  # type: ignore[attr-defined]
            given = enqueue.make_context("enqueue", shlex.split(block.text, comments=True)).params["set_"]
            settings(by_type(pairs(given)))


def test_settings_that_are_named_exist() -> None:
    named = [(one, found) for one in ALL for found in re.findall(r"--set ['\"]?([a-z_.]+)=?", one.text)]
    assert len(named) > 20
    kinds = {*BlockType, *AGENTS}
    for one, name in named:
        kind, dot, own = name.rpartition(".")
        assert own in Settings.__struct_fields__ or (kind in set(AGENTS) and own == "model"), one
        assert not dot or kind in kinds, one


def test_variables_that_are_named_are_read() -> None:
    read = environment_variables() | compose_variables() | {*fleet.FLOWER_SETTINGS, *FLOWER_VARIABLES}
    read.add("WEAVEGEN_WRITE_ANSWERS")
    for document in DOCUMENTS:
        assert set(re.findall(r"\b(?:WEAVEGEN|FLOWER)_[A-Z_]+\b", document.read_text())) <= read, document.name
