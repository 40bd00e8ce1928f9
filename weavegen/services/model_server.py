"""The model server that `up` starts where no other is named: nano with a model, or the simulation."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from weavegen.config import Config
from weavegen.errors import UsageError
from weavegen.nano import WEIGHTS
from weavegen.services import processes
from weavegen.services.processes import LOOPBACK, START_TIMEOUT, Service

NANO = "nano"
SIM = "sim"
NONE = "none"


def start(
    config: Config, port: int | None, sim_options: Sequence[str], environ: Mapping[str, str]
) -> tuple[str, bool]:
    """Starts that of `config.model`, unless it runs. Returns its name, and whether it was started.

    Raises UsageError where another one runs, or there is no such model.
    """
    name = SIM if config.model == SIM else NANO
    if (found := serving(config)) is not None:
        if found.name != name:
            raise UsageError(f"{found.name} serves the model already: `weavegen down`, then `up` with {name}")
        return name, False
    if name == SIM:
        command = [sys.executable, "-m", "weavegen.sim", *sim_options]
    else:
        from weavegen.nano.llama import read_shape

        folder = WEIGHTS if config.model == NANO else Path(config.model).absolute()
        if not folder.is_dir():
            raise UsageError(
                f"there is no model {config.model}: give nano, sim, none, or the folder of a small model"
            )
        read_shape(folder / "config.json")
        command = [sys.executable, "-m", "weavegen.cli", "nano", "serve", str(folder)]
        # Beside workers a second thread mostly waits for the first: eight games took 68 s with two, 62 s with one.
        environ = {"OPENBLAS_NUM_THREADS": "1", **environ}
    port = processes.free_port(port)
    ready = config.runtime / "model.ready"
    ready.unlink(missing_ok=True)
    processes.start(
        *(config, name),
        [*command, "--port", str(port), "--ready-file", str(ready)],
        url=f"http://{LOOPBACK}:{port}/v1",
        environ=environ,
        ready=ready.exists,
        timeout=START_TIMEOUT,
    )
    return name, True


def serving(config: Config) -> Service | None:
    """The one that runs."""
    return processes.find(config, NANO) or processes.find(config, SIM)


def simulated(config: Config) -> bool:
    """Whether what serves is the simulation, which is no model."""
    return config.model_url is None and processes.find(config, SIM) is not None


def urls(config: Config) -> list[str]:
    """Base URLs of the model servers. Raises UsageError if there is none."""
    if given := [url.strip().rstrip("/") for url in (config.model_url or "").split(",") if url.strip()]:
        return given
    service = serving(config)
    if service is None or service.url is None:
        raise UsageError("no model server: set OPENAI_BASE_URL, or start a small one with `weavegen up`")
    return [service.url]
