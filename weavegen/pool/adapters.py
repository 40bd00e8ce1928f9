"""Adapters that a pool's servers load while they serve: vLLM's `--enable-lora`, and nano."""

from collections.abc import Mapping
from pathlib import Path

from weavegen.errors import ModelError, TransientError, UsageError
from weavegen.pool.http import Http
from weavegen.pool.served import served

SECONDS = 300.0
"""That a server may take to read one."""
HINT = "vLLM does it with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True"


def load(servers: Mapping[str, str], name: str, folder: Path) -> None:
    """Have all servers serve an adapter as the model `name`. Those that do already are left as they are.

    `servers`: API keys by base URL. Each server reads the folder by itself. Raises UsageError where one can't; the
    others have it then.
    """
    body = {"lora_name": name, "lora_path": str(folder.absolute())}
    for url, key in servers.items():
        http = Http(key, SECONDS)
        try:
            if name not in [model.id for model in served(url, http)]:
                http.send(f"{url}/load_lora_adapter", body)
        except (ModelError, TransientError) as error:
            raise UsageError(f"{name} can't be loaded: {error} ({HINT})") from None


def unload(servers: Mapping[str, str], name: str) -> int:
    """Have all servers forget an adapter. Returns how many had it. Raises UsageError where one can't."""
    had = 0
    for url, key in servers.items():
        http = Http(key, SECONDS)
        try:
            if name in [model.id for model in served(url, http) if model.parent is not None]:
                http.send(f"{url}/unload_lora_adapter", {"lora_name": name})
                had += 1
        except (ModelError, TransientError) as error:
            raise UsageError(f"{name} can't be unloaded: {error} ({HINT})") from None
    return had
