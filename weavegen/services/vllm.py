"""The vLLM servers that `weavegen up --vllm MODEL` starts: as many as the GPUs hold, or one on the CPU."""

import json
import logging
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

import msgspec

from weavegen.config import Config
from weavegen.errors import ModelError, TransientError, UsageError
from weavegen.pool.http import Http
from weavegen.services import processes
from weavegen.services.processes import LOOPBACK, Service

log = logging.getLogger(__name__)

NAME = "vllm"
FLAGS = (
    *("--enable-prefix-caching", "--max-logprobs", "128"),
    *("--scheduling-policy", "priority", "--enable-prompt-tokens-details", "--disable-uvicorn-access-log"),
)
"""docs/servers.md says what is missing without each."""
CPU_FLAGS = ("--dtype", "float32", "--enforce-eager", "--no-enable-chunked-prefill", "--max-num-seqs", "16")
"""On the CPU, a request with a seed crashes vLLM 0.32 if prompts are computed in chunks."""
CPU_LENGTH = 8192
"""Tokens of a sequence on the CPU, where a batch must have room for the longest prompt."""
CPU_ENVIRON = {"VLLM_CPU_KVCACHE_SPACE": "2", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
QUIET = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
START_SECONDS = 1800.0
"""For loading weights, perhaps from a slow disk, and compiling."""
TOLD_SECONDS = 5.0
"""Time between lines about the progress."""
SOURCE_TREE = Path(__file__).resolve().parents[2] / ".venv-vllm" / "bin" / "python"
"""Where scripts/vllm.sh installs vLLM for the CPU."""


def servers(config: Config) -> list[Service]:
    """The vLLM servers of this installation that run, in the order of their names."""
    services = processes.registered(config).values()
    own = [one for one in services if one.name.startswith(f"{NAME}-") and processes.alive(one)]
    return sorted(own, key=lambda service: int(service.name.rpartition("-")[2]))


def start(
    config: Config,
    model: str,
    *,
    parallel: int = 1,
    gpus: Sequence[str] | None = None,
    options: Sequence[str] | None = None,
    tell: Callable[[str], None] = log.info,
) -> tuple[list[Service], bool]:
    """Start the servers, and wait until all are ready. Returns them, and whether they were started: False if some ran.

    `parallel`: GPUs that one server splits its weights over. `gpus`: those that are used; None: all. `tell` gets lines
    about the progress. Raises UsageError.
    """
    if running := servers(config):
        for one in processes.registered(config).values():
            if one.name.startswith(f"{NAME}-") and one.failed is not None:
                tell(f"{one.name} is started again: see {one.log}")
                processes.record(config, msgspec.structs.replace(one, failed=None, restarts=0))  # by the supervisor
        return running, False
    if options is None:
        raise UsageError(f"vLLM's options are not stored: run `weavegen up --vllm {model}` with the same options")
    python = interpreter(config)
    groups = grouped(visible_gpus() if gpus is None else list(gpus), parallel)
    started: list[Service] = []
    try:
        for number, group in enumerate(groups, 1):
            port = processes.free_port(None)
            command = [*environment(group), python, *arguments(model, port, group, options)]
            url = f"http://{LOOPBACK}:{port}/v1"
            environ = processes.environment(config)
            started.append(processes.start(config, f"{NAME}-{number}", command, url=url, environ=environ))
        for service in started:
            wait(service, tell)
    except BaseException:
        processes.stop(config, started)
        raise
    return started, True


def grouped(gpus: Sequence[str], parallel: int) -> list[list[str]]:
    """The GPUs of each server; one empty group for the CPU. Raises UsageError if they are too few."""
    if parallel < 1:
        raise UsageError(f"--tensor-parallel is {parallel}: give 1 or more")
    if not gpus:
        if parallel > 1:
            raise UsageError(f"--tensor-parallel {parallel} needs {parallel} GPUs, and there are none: leave it out")
        return [[]]
    if len(gpus) < parallel:
        raise UsageError(f"--tensor-parallel {parallel} needs {parallel} GPUs, and {len(gpus)} are given: give fewer")
    return [list(gpus[at : at + parallel]) for at in range(0, len(gpus) - parallel + 1, parallel)]


def visible_gpus() -> list[str]:
    """The GPUs of this machine that vLLM may use, as CUDA_VISIBLE_DEVICES names them."""
    if (given := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [gpu for gpu in given.split(",") if gpu.strip() and gpu.strip() != "-1"]
    if (program := shutil.which("nvidia-smi")) is None:
        return []
    query = [program, "--query-gpu=index", "--format=csv,noheader"]
    done = subprocess.run(query, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout.split() if done.returncode == 0 else []


def interpreter(config: Config) -> str:
    """The Python that has vLLM: WEAVEGEN_VLLM, this one, or that of scripts/vllm.sh. Raises UsageError."""
    if config.vllm is not None:
        if shutil.which(config.vllm) is None:
            raise UsageError(f"WEAVEGEN_VLLM={config.vllm} is not a program: give the path of a Python that has vLLM")
        return config.vllm
    if find_spec("vllm") is not None:
        return sys.executable
    if SOURCE_TREE.exists():
        return str(SOURCE_TREE)
    raise UsageError(
        'vLLM is not installed: `pip install "weavegen[vllm]"`, or set WEAVEGEN_VLLM to a Python that has it; '
        "for the CPU, in the source tree: `bash scripts/vllm.sh install`"
    )


def environment(group: Sequence[str]) -> list[str]:
    """A command that sets a server's variables before it becomes the server, so that restarts have them, too."""
    cores = str(len(os.sched_getaffinity(0)))  # that this process may use
    own = {"CUDA_VISIBLE_DEVICES": ",".join(group)} if group else CPU_ENVIRON | {"OMP_NUM_THREADS": cores}
    return ["env", *(f"{name}={value}" for name, value in (QUIET | own).items())]


def arguments(model: str, port: int, group: Sequence[str], options: Sequence[str]) -> list[str]:
    """The arguments of one server. The user's `options` come last, and take precedence."""
    folder = Path(model)
    place, name = (str(folder.resolve()), folder.resolve().name) if folder.is_dir() else (model, model)
    own = ["--model", place, "--served-model-name", name, "--host", LOOPBACK, "--port", str(port)]
    if group:
        own += ["--tensor-parallel-size", str(len(group))]
    else:
        length = str(min(CPU_LENGTH, positions(folder)))
        own += [*CPU_FLAGS, "--max-model-len", length, "--max-num-batched-tokens", length]
    return ["-m", "vllm.entrypoints.openai.api_server", *own, *FLAGS, *options]


def positions(folder: Path) -> int:
    """Tokens that a model in a folder can take; CPU_LENGTH if its config does not say."""
    try:
        found = json.loads((folder / "config.json").read_text()).get("max_position_embeddings", CPU_LENGTH)
    except (OSError, ValueError, AttributeError):
        return CPU_LENGTH
    return found if isinstance(found, int) and found > 0 else CPU_LENGTH


def wait(service: Service, tell: Callable[[str], None]) -> None:
    """Wait until a server is ready, and report its last line now and then. Raises UsageError if it ends or is late."""
    told, said = time.monotonic(), ""
    root = (service.url or "").removesuffix("/v1")

    def ready() -> bool:
        nonlocal told, said
        if time.monotonic() - told > TOLD_SECONDS:
            told = time.monotonic()
            if (line := processes.last_line(service.log)) != said:
                said = line
                tell(f"{service.name}: {line[-160:]}")
        try:
            http.get(f"{root}/health")
        except (TransientError, ModelError):
            time.sleep(0.25)
            return False
        return True

    with closing(Http("EMPTY", 5.0)) as http:
        processes.wait_until(service, ready, START_SECONDS)
