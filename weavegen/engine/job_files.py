"""Reads the files that a job's traces begin with: those of a folder, and modules beside a bootstrap file."""

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from weavegen.engine.document_folder import named_plainly, visible
from weavegen.errors import UsageError
from weavegen.python_parser import NO_PYTHON, parse
from weavegen.sandbox.starting_files import IMPORTABLE

MAX_FILES = 10_000
MAX_BYTES = 64 << 20


def read_files(folder: str | Path) -> dict[str, bytes]:
    """The files below a folder, by relative path, without hidden ones. Raises UsageError."""
    root = Path(folder).resolve()
    if not root.is_dir():
        raise UsageError(f"{folder} is not a folder: give one with the initial files of /app")
    files: dict[str, bytes] = {}
    size = 0
    for path in visible(root):
        name = path.relative_to(root).as_posix()
        if "__pycache__" in path.parts or not path.resolve().is_relative_to(root) or not path.is_file():
            continue
        if not named_plainly(name):
            raise UsageError(f"{name!a} can't be the name of a file in a box: rename it")
        size += path.stat().st_size
        if len(files) >= MAX_FILES or size > MAX_BYTES:  # before a file is read that does not fit into memory
            raise UsageError(f"{folder} has more than {MAX_FILES:,} files or {MAX_BYTES >> 20} MB: give a smaller one")
        try:
            files[name] = path.read_bytes()
        except OSError as error:
            raise UsageError(f"{path} can't be read: {error.strerror}; allow it, or hide it with a dot") from None
    return files


def neighbours(file: Path, source: str) -> dict[str, bytes]:
    """The modules beside a user's bootstrap file that it, or one of them, imports as `bootstraps.NAME`."""
    if file.resolve().parent == IMPORTABLE.get("bootstraps"):
        return {}
    found: dict[str, bytes] = {}
    waiting = list(imported(source))
    while waiting:
        name = waiting.pop()
        path = file.parent / f"{name}.py"
        key = f"bootstraps/{name}.py"
        if key not in found and path.is_file():
            found[key] = path.read_bytes()
            waiting += imported(found[key].decode("utf-8", "replace"))
    return found


def imported(source: str) -> Iterator[str]:
    """The modules of the package `bootstraps` that a text imports."""
    try:
        tree = parse(source)
    except NO_PYTHON:
        return
    for node in ast.walk(tree):
        names: Iterable[str] = ()
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module == "bootstraps":
            names = [f"bootstraps.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
            names = [node.module]
        for name in names:
            package, _, module = name.partition(".")
            if package == "bootstraps" and module.isidentifier():
                yield module


def merged(parts: Iterable[Mapping[str, bytes]]) -> dict[str, bytes]:
    """Files of several sources. Raises UsageError where two have different contents for one path."""
    files: dict[str, bytes] = {}
    for part in parts:
        for path, data in part.items():
            if files.setdefault(path, data) != data:
                raise UsageError(f"two files of the job would be /app/{path}: enqueue them in two jobs")
    return files
