"""The command line. Bad input is one line on standard error and exit code 2."""

from weavegen.cli import audit, chat, check, examples, jobs, look, operate, services
from weavegen.cli.app import main

__all__ = ["audit", "chat", "check", "examples", "jobs", "look", "main", "operate", "services"]
