"""Names that deployments and documents may use."""

import ast
import re
from pathlib import Path

from weavegen import config

COMPOSE = Path(__file__).parents[2] / "deploy/compose.yaml"
FLOWER_VARIABLES = ("FLOWER_BASIC_AUTH", "FLOWER_UNAUTHENTICATED_API")
"""Flower's own variables that weavegen does not set."""
QUEUES = {"control", "sample", "score", "lint", "execute"}


def environment_variables() -> set[str]:
    """All environment variables that weavegen reads, by the calls in config.py."""
    tree = ast.parse(Path(config.__file__).read_text())
    names = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return {name for name in names if re.fullmatch(r"[A-Z][A-Z_]+", name)}


def compose_variables() -> set[str]:
    """The variables that compose.yaml takes from deploy/.env or the environment."""
    return set(re.findall(r"\$\{([A-Z_]+)", COMPOSE.read_text()))
