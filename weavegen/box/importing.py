"""What blocks may use: the names of a new trace, names without an import, the module `weave`, and packages."""

import functools
import importlib.util
import json
import os
import random
import sys
import time
import types
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from weavegen.box import api, weave

MODULES = ("ast", "asyncio", "functools", "hashlib", "inspect", "logging", "requests", "traceback")
ATTRIBUTES = {
    "argparse": "ArgumentParser", "collections": "deque", "copy": "deepcopy", "enum": "Enum auto",
    "jsonschema": "validate", "pprint": "pformat", "typing": "Any Dict List Optional",
    api.__name__: "Callable Callback Subagent Task Tick Tree check_schema",
}  # fmt: skip
ON_DEMAND: dict[str, tuple[str, str | None]] = {
    **{name: (name, None) for name in MODULES},
    **{name: (module, name) for module, names in ATTRIBUTES.items() for name in names.split()},
}
"""Names that blocks may use without an import, as in weave-agent, and those of api.py: module, and attribute or None.
They are imported when a block first uses them, because some take a tenth of a second."""


def new_tree(args: dict[str, Any]) -> tuple[api.Tree, api.Subagent, dict[str, Any]]:
    """The tree of a new trace, the subagent that its bootstrap file calls `self`, and the names in scope."""
    tree = api.Tree(str(args["model_name"]), float(args["budget"]))
    subagent = tree.subagent("bootstrap", None, "Set up", {}, tree.time_budget)
    names = {name: getattr(weave, name) for name in weave.IN_SCOPE}
    names |= {"agent": tree, "args": types.SimpleNamespace(**args), "graded_before": None, "partial": functools.partial}
    names |= {"os": os, "json": json, "random": random, "time": time, "types": types}
    return tree, subagent, names | {"__file__": api.__file__}  # as in weave-agent; multiprocessing runs it


def prepare(packages: str | None, in_image: bool = False) -> None:
    """Let this process and its children import from the folder `packages`, after the standard library.

    PATH gets its commands, such as `django-admin`. In an image the children have the image's own Python.
    """
    sys.modules["weave"] = weave
    if packages is not None:
        sys.path.append(packages)
    if packages is not None and not in_image:
        os.environ["PYTHONPATH"] = packages
        os.environ["PATH"] = f"{packages}/bin:{os.environ.get('PATH', os.defpath)}"
        # One thread for each processor of the host would use up the box's processes and address space.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Files written for weave-agent import libtmux and do not use it: an empty module is enough.
    if importlib.util.find_spec("libtmux") is None:
        sys.modules["libtmux"] = types.ModuleType("libtmux")


def import_on_demand(code: types.CodeType, namespace: dict[str, Any]) -> None:
    """Import the names of ON_DEMAND that a block uses and the namespace lacks. Ignores those that can't be imported."""
    for name in set(names(code)) & ON_DEMAND.keys() - namespace.keys():
        module, attribute = ON_DEMAND[name]
        with suppress(ImportError):
            imported = importlib.import_module(module)
            namespace[name] = imported if attribute is None else getattr(imported, attribute)


def names(code: types.CodeType) -> Iterator[str]:
    """The global names that a block and the functions in it use."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from names(constant)
