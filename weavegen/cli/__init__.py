"""The command line. Bad input is one line on standard error and exit code 2."""

from weavegen.cli import (
    audit,
    calibrate,
    chat,
    check,
    examples,
    export,
    fork,
    jobs,
    look,
    operate,
    refresh,
    release,
    rescore,
    search,
    services,
)
from weavegen.cli.app import main

__all__ = [
    "audit",
    "calibrate",
    "chat",
    "check",
    "examples",
    "export",
    "fork",
    "jobs",
    "look",
    "main",
    "operate",
    "refresh",
    "release",
    "rescore",
    "search",
    "services",
]
