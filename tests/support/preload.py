"""Imports what the commands of weavegen import, for the processes that tests/support/command.py forks."""

import importlib
import pkgutil
import sys

import celery  # noqa: F401

import weavegen.cli

PACKAGES = ("audit", "engine", "evaluator", "exports", "search", "services", "store", "viewer")
"""Packages that commands import when they run."""

for _package in PACKAGES:
    _path = importlib.import_module(f"weavegen.{_package}").__path__
    for _module in pkgutil.walk_packages(_path, f"weavegen.{_package}."):
        importlib.import_module(_module.name)
# The consoles of the command line check standard output when they are created, so each process must create its own.
for _name in [name for name in sys.modules if name.startswith("weavegen.cli")]:
    del sys.modules[_name]
del weavegen.cli
