"""Loads and unloads LoRA adapters on the running servers of a pool (vLLM with `--enable-lora`, or nano)."""

import logging
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from weavegen.errors import ModelError, TransientError, UsageError
from weavegen.pool.http import Http
from weavegen.pool.served import models_at

log = logging.getLogger(__name__)

TIMEOUT_SECONDS = 300.0
"""Time that a server may take to read an adapter."""
HINT = "vLLM does it with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True"


def require_new(servers: Mapping[str, str], name: str) -> None:
    """Raise UsageError if a server has a model of this name: `load` would leave that one as it is."""
    for url, key in servers.items():
        if name in (model.id for model in models_at(url, key)):
            raise UsageError(f"{url} serves a model {name} already: run `weavegen pool unload`, or give another name")


def load(servers: Mapping[str, str], name: str, folder: Path) -> int:
    """Let every server serve an adapter as the model `name`, unless it does already. Returns how many did not.

    `servers`: API keys by base URL. Each server reads the folder itself. A warning names the servers that fail;
    raises UsageError if all of them do.
    """
    return _change(servers, name, "load", {"lora_path": str(folder.absolute())})


def unload(servers: Mapping[str, str], name: str) -> int:
    """Remove an adapter from every server. Returns how many had it. Raises UsageError if a server failed."""
    return _change(servers, name, "unload", {})


def _change(servers: Mapping[str, str], name: str, verb: str, options: Mapping[str, str]) -> int:
    count, failures = 0, list[str]()
    for url, key in servers.items():
        try:
            models = [model for model in models_at(url, key) if verb == "load" or model.parent is not None]
            if (name in (model.id for model in models)) == (verb == "unload"):
                with closing(Http(key, TIMEOUT_SECONDS)) as http:
                    http.send(f"{url}/{verb}_lora_adapter", {"lora_name": name, **options})
                count += 1
        except (ModelError, TransientError) as error:
            failures.append(f"{name} can't be {verb}ed: {error} ({HINT})")
    if len(failures) == len(servers) or (failures and verb == "unload"):  # others would serve two models by one name
        raise UsageError(failures[0])
    for failure in failures:
        log.warning("%s", failure)
    return count
