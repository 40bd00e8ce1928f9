"""The model server that `up` starts if OPENAI_BASE_URL names none: nano with a small model, the simulation, or vLLM."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from weavegen.config import Config
from weavegen.errors import UsageError
from weavegen.services import processes, vllm
from weavegen.services.processes import LOOPBACK, START_TIMEOUT_SECONDS, Service

NANO = "nano"
SIM = "sim"
NONE = "none"
VLLM = "vllm:"
"""Prefix of the model in WEAVEGEN_MODEL where `up --vllm` starts the servers."""
NANO_COMMAND = (sys.executable, "-m", "weavegen_nano")
NANO_ENVIRON = {"OPENBLAS_NUM_THREADS": "1"}
"""One thread: beside workers a second one mostly waits (eight games: 68 s with two threads, 62 s with one)."""


def start(config: Config, port: int | None, sim_options: Sequence[str], environ: Mapping[str, str]) -> tuple[str, bool]:
    """Start the server of `config.model` unless it runs. Returns its name, and if it was started. Raises UsageError."""
    name = SIM if config.model == SIM else NANO
    if servers(config):
        return name, False
    if name == SIM:
        launch(config, SIM, [sys.executable, "-m", "simulation", *sim_options], port, environ)
    else:
        launch_nano(config, NANO, None if config.model == NANO else Path(config.model), port, environ)
    return name, True


def require_no_other(config: Config) -> None:
    """Raise UsageError if a server runs with another model than the one that `up` would start."""
    if config.model_url is not None or config.model == NONE or not (running := servers(config)):
        return
    if (model := vllm_model(config)) is not None:
        words = vllm.arguments(model, 0, (), ())[:4]
    elif config.model == SIM:
        words = ["-m", "simulation"]
    else:
        words = [*NANO_COMMAND[1:], "--port" if config.model == NANO else str(Path(config.model).absolute())]
    if "\0".join([*words, ""]) not in "\0".join(running[0].command):
        raise UsageError(f"{running[0].name} serves another model: `weavegen down`, then `up` again")


def launch_nano(
    config: Config, name: str, folder: Path | None, port: int | None, environ: Mapping[str, str]
) -> Service:
    """Start nano with the model in `folder`, or with its own. Raises UsageError if it can't serve it."""
    if folder is not None and not folder.is_dir():
        raise UsageError(f"there is no model {folder}: give nano, sim, none, or the folder of a small model")
    command = [*NANO_COMMAND, *([] if folder is None else [str(folder.absolute())])]
    return launch(config, name, command, port, {**NANO_ENVIRON, **environ})


def launch(config: Config, name: str, command: Sequence[str], port: int | None, environ: Mapping[str, str]) -> Service:
    """Start a model server, and wait until it is ready."""
    port = processes.free_port(port)
    ready = config.runtime / f"{name}.ready"
    ready.unlink(missing_ok=True)
    return processes.start(
        *(config, name),
        [*command, "--port", str(port), "--ready-file", str(ready)],
        url=f"http://{LOOPBACK}:{port}/v1",
        environ=environ,
        ready=ready.exists,
        timeout=START_TIMEOUT_SECONDS,
    )


def servers(config: Config) -> list[Service]:
    """Return the model servers of `up` that run: several only of vLLM."""
    small = [service for name in (NANO, SIM) if (service := processes.find(config, name)) is not None]
    return [*small, *vllm.servers(config)]


def vllm_model(config: Config) -> str | None:
    """Return the model that `up --vllm` serves; None if WEAVEGEN_MODEL names another kind of server."""
    return config.model.removeprefix(VLLM) if config.model.startswith(VLLM) else None


def simulated(config: Config) -> bool:
    """Whether the model server is the simulation."""
    return config.model_url is None and processes.find(config, SIM) is not None


def urls(config: Config) -> list[str]:
    """Return the base URLs of the model servers. Raises UsageError if there is none."""
    if configured := [url.strip().rstrip("/") for url in (config.model_url or "").split(",") if url.strip()]:
        return configured
    if not (found := [service.url for service in servers(config) if service.url is not None]):
        raise UsageError("no model server: set OPENAI_BASE_URL, or start a small one with `weavegen up`")
    return found
