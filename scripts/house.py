"""`make house`: size and structure of the code with their limits. Exit code 1 if a limit is exceeded."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("weavegen", "weavegen_nano", "tasks", "bootstraps", "migrations")
BOUNDS = {
    "lines of Python in weavegen/": 40_000,
    "lines of Python in tasks/": 700,
    "cycles between packages": 0,
    "size of ARCHITECTURE.md, bytes": 16_384,
}
"""The largest allowed value of each figure that has a limit."""


def files(folder: str) -> list[Path]:
    """The Python files below a folder that git tracks."""
    listed = subprocess.run(["git", "ls-files", "-z", folder], cwd=ROOT, check=True, capture_output=True, text=True)
    return [ROOT / name for name in listed.stdout.split("\0") if name.endswith(".py")]


def lines(folder: str) -> int:
    return sum(len(path.read_text().splitlines()) for path in files(folder))


def package_of(module: str) -> str:
    """The package of a module. A file directly below weavegen/ counts as one."""
    parts = module.split(".")
    return ".".join(parts[:2]) if parts[0] == "weavegen" else parts[0]


def imports() -> set[tuple[str, str]]:
    """Pairs (importing package, imported package), including imports inside functions."""
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    pairs = {
        (package_of(module), package_of(imported))
        for module in graph.modules
        for imported in graph.find_modules_directly_imported_by(module)
    }
    return {(above, below) for above, below in pairs if above != below}


def cycles(pairs: set[tuple[str, str]]) -> list[list[str]]:
    """Groups of packages that import each other, directly or indirectly."""
    reached = {package: {package} for pair in pairs for package in pair}
    grown = True
    while grown:
        grown = False
        for above, below in pairs:
            if not reached[below] <= reached[above]:
                reached[above] |= reached[below]
                grown = True
    groups = {frozenset(b for b in reached[a] if a in reached[b]) for a in reached}
    return [sorted(group) for group in groups if len(group) > 1]


def functions() -> Iterator[tuple[int, str]]:
    """(lines, place) of each function of weavegen/ and tasks/."""
    for path in [*files("weavegen"), *files("tasks")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
                yield node.end_lineno - node.lineno + 1, f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"


def main() -> int:
    """Print the figures. Returns the exit code."""
    pairs = imports()
    groups = cycles(pairs)
    figures = {
        "lines of Python in weavegen/": lines("weavegen"),
        "lines of Python in tasks/": lines("tasks"),
        "lines of Python in weavegen_nano/": lines("weavegen_nano"),
        "packages": len({package for pair in pairs for package in pair}),
        "imports between packages": len(pairs),
        "cycles between packages": len(groups),
        "size of ARCHITECTURE.md, bytes": (ROOT / "ARCHITECTURE.md").stat().st_size,
    }
    missed = 0
    for name, value in figures.items():
        bound = BOUNDS.get(name)
        over = bound is not None and value > bound
        missed += over
        suffix = "" if bound is None else f"  (at most {bound:,})" + (" MISSED" if over else "")
        sys.stdout.write(f"{name:32} {value:>8,}{suffix}\n")
    for group in groups:
        sys.stdout.write(f"  cycle: {', '.join(group)}\n")
    size, place = max((len(path.read_text().splitlines()), path) for path in files("weavegen"))
    sys.stdout.write(f"{'longest file':32} {size:>8,}  {place.relative_to(ROOT)}\n")
    size, function = max(functions())
    sys.stdout.write(f"{'longest function':32} {size:>8,}  {function}\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
