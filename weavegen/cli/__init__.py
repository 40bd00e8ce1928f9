"""The command line. Bad input is one line on standard error and exit code 2."""

from weavegen.cli import chat, check, examples, jobs, look, services
from weavegen.cli.app import main

__all__ = ["chat", "check", "examples", "jobs", "look", "main", "services"]
