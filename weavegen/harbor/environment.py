"""An environment for the package `harbor`: its trials run in weavegen's boxes, without Docker and without a daemon.

    harbor run --path tasks/ --agent oracle --env weavegen.harbor:BubblewrapEnvironment

Images are made once for each content and kept in WEAVEGEN_HOME (sandbox/images.py). Harbor runs the verifier, in the
agent's box; weavegen's own verifier (harbor/verifier.py) is not used.
"""

import asyncio
import contextlib
import os
import shutil
import tarfile
import tempfile
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import IO, Any

from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities, EnvironmentResourceCapabilities

from weavegen import config as configuration
from weavegen import folders
from weavegen.errors import EnvironmentFailure, UsageError
from weavegen.harbor.folder import context_of, pack
from weavegen.harbor.verifier import image_of, limits_of, root_of, task_files
from weavegen.kernel.harbor import HarborTask, Phase
from weavegen.sandbox import image_root
from weavegen.sandbox.command import CommandBox
from weavegen.sandbox.images import require_builder
from weavegen.sandbox.providers import provider

DEFAULT_CPUS, DEFAULT_MEMORY_MB, DEFAULT_STORAGE_MB = 1.0, 2048, 10240
"""Limits of a task that names none."""
MAX_OUTPUT_BYTES = 64 * 2**20
"""Harbor gets this many bytes from the beginning of each of a command's two output streams."""


class BubblewrapEnvironment(BaseEnvironment):  # type: ignore[misc] # harbor is not installed where types are checked
    """A box whose root is the task's image. It lives until `stop`, or until this process has ended."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._config = replace(configuration.load(), sandbox="bubblewrap")
        self._place = f"harbor-{self.session_id}"
        self._box: CommandBox | None = None

    @staticmethod
    def type() -> str:
        return "bubblewrap"

    @classmethod
    def preflight(cls, kwargs: dict[str, Any] | None = None) -> None:
        """Raise SystemExit, with advice, if boxes or images can't be made here."""
        super().preflight(kwargs)
        try:
            provider("bubblewrap").require()
            require_builder()
        except UsageError as error:
            raise SystemExit(str(error)) from None

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        return EnvironmentCapabilities(disable_internet=True)

    @classmethod
    def resource_capabilities(cls) -> EnvironmentResourceCapabilities:
        return EnvironmentResourceCapabilities(cpu_limit=True, memory_limit=True, fractional_cpus=True)

    def _validate_definition(self) -> None:
        if self.task_env_config.docker_image is None and not (self.environment_dir / "Dockerfile").is_file():
            missing = "there is neither a Dockerfile nor docker_image in task.toml"
            raise FileNotFoundError(f"{self.environment_dir}: {missing}")

    def _task(self) -> HarborTask:
        """The image and the limits that Harbor asks for."""
        wanted = self.task_env_config
        return HarborTask(
            name=self.environment_name,
            steps=(),
            context=context_of(self.environment_dir),
            image=wanted.docker_image,
            build_seconds=wanted.build_timeout_sec,
            workdir=wanted.workdir,
            cpus=self._effective_cpus or DEFAULT_CPUS,
            memory_mb=self._effective_memory_mb or DEFAULT_MEMORY_MB,
            storage_mb=self._effective_storage_mb or DEFAULT_STORAGE_MB,
        )

    async def start(self, force_build: bool) -> None:
        """Start the box, whose image is made first if it is missing. `force_build` has no effect: equal files give an
        equal image. Raises EnvironmentFailure."""
        await asyncio.to_thread(self._start)
        await self.ensure_dirs(self._mount_targets(writable_only=True))
        await self._upload_environment_dir_after_start()

    def _start(self) -> None:
        config, task = self._config, self._task()
        folders.prepare(config)
        files = task_files(config, f"context-{task.context}", lambda: pack(self.environment_dir.parent))
        image = image_of(config, task, files)
        changes = config.workspaces / self._place / "changes"
        root = root_of(config, task, image, Phase(seconds=0), changes)
        root = replace(root, environ=root.environ | self._startup_env())
        network = "none" if self._network_disabled else "host"
        self._box = CommandBox(config, root, limits_of(task), self._place, network)

    async def stop(self, delete: bool) -> None:
        """End the box. Its files are removed with `delete`."""
        box, self._box = self._box, None
        if box is not None:
            await asyncio.to_thread(box.kill)
        if delete:
            await asyncio.to_thread(image_root.remove, self._config.workspaces / self._place)

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        """Run a shell command. Raises RuntimeError when its time is up, EnvironmentFailure if the box has ended."""
        box = self._live()
        chosen = self._resolve_user(user)
        request = {
            "argv": ["bash", "-c", command],
            "cwd": cwd or box.root.workdir,
            "user": box.root.user if chosen is None else str(chosen),
            "environ": self._merge_env(env) or {},
        }
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            code = await self._request(request, timeout_sec, out, err)
            return ExecResult(stdout=_text(out), stderr=_text(err), return_code=code)

    def _live(self) -> CommandBox:
        if self._box is None:
            raise EnvironmentFailure("the environment is not running: start it first")
        return self._box

    async def _request(
        self,
        request: dict[str, Any],
        seconds: float | None,
        out: IO[bytes],
        err: IO[bytes],
        given: IO[bytes] | None = None,
    ) -> int:
        """Have the box do something (box/commands.py). Returns the exit code. Cancelling this kills it."""
        with contextlib.ExitStack() as stack:
            source = given or stack.enter_context(open(os.devnull, "rb"))
            answer = stack.enter_context(self._live().send(request, source, out, err))
            answer.setblocking(False)
            try:
                line = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(answer, 64), seconds)
            except TimeoutError:
                raise RuntimeError(f"Command timed out after {seconds} seconds") from None
        if not line:
            raise EnvironmentFailure(f"the box has ended: {self._live().killed_for() or 'it was killed'}")
        return int(line)

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        target = PurePosixPath(target_path)
        await self._upload(Path(source_path), str(target.parent), target.name)

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        await self._upload(Path(source_dir), target_dir, ".")

    async def _upload(self, source: Path, folder: str, name: str) -> None:
        """Copy a file or a folder into a folder of the box, under a name. Root owns the copy."""
        with tempfile.TemporaryFile() as packed, open(os.devnull, "wb") as nothing:
            with tarfile.open(fileobj=packed, mode="w") as archive:
                archive.add(source, arcname=name, filter=_owned_by_root)
            packed.seek(0)
            await self._transfer({"put": folder}, packed, nothing)

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        with tempfile.TemporaryFile() as packed:
            await self._transfer({"get": source_path}, None, packed)
            packed.seek(0)
            with tarfile.open(fileobj=packed) as archive:
                content = archive.extractfile(archive.getmembers()[0])
                if content is None:
                    raise RuntimeError(f"{source_path} is not a file")
                Path(target_path).parent.mkdir(parents=True, exist_ok=True)
                with content, Path(target_path).open("wb") as file:
                    shutil.copyfileobj(content, file)

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        """Copy the files and folders in a folder. Links, which could lead anywhere, and special files are left out."""
        with tempfile.TemporaryFile() as packed:
            await self._transfer({"get": source_dir}, None, packed)
            packed.seek(0)
            Path(target_dir).mkdir(parents=True, exist_ok=True)
            with tarfile.open(fileobj=packed) as archive:
                files = [entry for entry in archive if entry.isreg() or entry.isdir()]
                archive.extractall(target_dir, files, filter="data")

    async def _transfer(self, request: dict[str, Any], given: IO[bytes] | None, out: IO[bytes]) -> None:
        """Move files as root of the box. Raises RuntimeError."""
        with tempfile.TemporaryFile() as err:
            request |= {"user": "0", "environ": {}}
            if await self._request(request, None, out, err, given) != 0:
                raise RuntimeError(f"the files could not be copied: {_text(err).strip()[-500:]}")


def _owned_by_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    return entry.replace(uid=0, gid=0, uname="", gname="", deep=False)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read(MAX_OUTPUT_BYTES).decode(errors="replace")
