"""Loads and unloads LoRA adapters on the running servers of a pool (vLLM with `--enable-lora`, or nano)."""

from collections.abc import Mapping
from pathlib import Path

from weavegen.errors import ModelError, TransientError, UsageError
from weavegen.pool.http import Http
from weavegen.pool.served import list_models

TIMEOUT_SECONDS = 300.0
"""Time that a server may take to read an adapter."""
HINT = "vLLM does it with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True"


def require_new(servers: Mapping[str, str], name: str) -> None:
    """Raise UsageError if a server has a model of this name: `load` would leave that one as it is."""
    for url, key in servers.items():
        if name in (model.id for model in list_models(url, Http(key, TIMEOUT_SECONDS))):
            raise UsageError(f"{url} serves a model {name} already: run `weavegen pool unload`, or give another name")


def load(servers: Mapping[str, str], name: str, folder: Path) -> int:
    """Let every server serve an adapter as the model `name`, unless it does already. Returns how many did not.

    `servers`: API keys by base URL. Each server reads the folder itself. Raises UsageError at the first server that
    fails; the servers before it keep the adapter.
    """
    return _change(servers, name, "load", {"lora_path": str(folder.absolute())})


def unload(servers: Mapping[str, str], name: str) -> int:
    """Remove an adapter from every server. Returns how many had it. Raises UsageError if a server fails."""
    return _change(servers, name, "unload", {})


def _change(servers: Mapping[str, str], name: str, verb: str, options: Mapping[str, str]) -> int:
    count = 0
    for url, key in servers.items():
        http = Http(key, TIMEOUT_SECONDS)
        try:
            models = list_models(url, http)
            adapters = [model.id for model in models if verb == "load" or model.parent is not None]
            if (name in adapters) == (verb == "unload"):
                http.send(f"{url}/{verb}_lora_adapter", {"lora_name": name, **options})
                count += 1
        except (ModelError, TransientError) as error:
            raise UsageError(f"{name} can't be {verb}ed: {error} ({HINT})") from None
    return count
