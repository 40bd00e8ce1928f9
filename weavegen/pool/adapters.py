"""Loads and unloads LoRA adapters on the running servers of a pool (vLLM with `--enable-lora`, or nano)."""

from collections.abc import Mapping
from pathlib import Path

from weavegen.errors import ModelError, TransientError, UsageError
from weavegen.pool.http import Http
from weavegen.pool.served import list_models

TIMEOUT_SECONDS = 300.0
"""Time that a server may take to read an adapter."""
HINT = "vLLM does it with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True"


def load(servers: Mapping[str, str], name: str, folder: Path) -> None:
    """Let every server serve an adapter as the model `name`, unless it does already.

    `servers`: API keys by base URL. Each server reads the folder itself. Raises UsageError at the first server
    that fails; the servers before it keep the adapter.
    """
    body = {"lora_name": name, "lora_path": str(folder.absolute())}
    for url, key in servers.items():
        http = Http(key, TIMEOUT_SECONDS)
        try:
            if name not in [model.id for model in list_models(url, http)]:
                http.send(f"{url}/load_lora_adapter", body)
        except (ModelError, TransientError) as error:
            raise UsageError(f"{name} can't be loaded: {error} ({HINT})") from None


def unload(servers: Mapping[str, str], name: str) -> int:
    """Remove an adapter from every server. Returns how many had it. Raises UsageError if a server fails."""
    count = 0
    for url, key in servers.items():
        http = Http(key, TIMEOUT_SECONDS)
        try:
            if name in [model.id for model in list_models(url, http) if model.parent is not None]:
                http.send(f"{url}/unload_lora_adapter", {"lora_name": name})
                count += 1
        except (ModelError, TransientError) as error:
            raise UsageError(f"{name} can't be unloaded: {error} ({HINT})") from None
    return count
