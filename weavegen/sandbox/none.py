"""No isolation at all: environment processes run as the user who started the worker, on the open machine.

For platforms without bubblewrap, and only when it is asked for by name. Traces share the host's network, so
two of them can't serve the same port; a trace can read and delete whatever the user can.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from weavegen.sandbox.children import adopt
from weavegen.sandbox.providers import Box, Handle, Layout


class NoSandbox:
    name = "none"

    def layout(self, workspace: Path) -> Layout:
        code = Path(__file__).resolve().parents[2]
        return Layout(str(workspace), str(code), getattr(sys, "_base_executable", sys.executable))

    def uid(self, trace_id: int, workspaces: Path) -> int:
        return os.getuid()

    def require(self) -> None:
        """It takes what there is."""

    def start(self, box: Box) -> Handle:
        for name, folder in box.folders.items():
            link = box.workspace / name
            if not link.is_symlink():
                link.symlink_to(folder)
        limits, command = box.limits, list(box.command)
        if shutil.which("prlimit"):  # no --nproc: it would count all processes of the user
            numbers = (
                f"--as={limits.address_space}",
                f"--fsize={limits.file_size}",
                f"--nofile={limits.files}",
                "--core=0",
            )
            command = ["prlimit", *numbers, "--", *command]
        with box.log.open("ab") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=box.descriptors,
                start_new_session=True,
                cwd=box.workspace,
                env={"PATH": os.defpath, "HOME": str(box.workspace), "LANG": "C.UTF-8", **box.environ},
            )
        adopt(process.pid, process)
        return Handle.of(process.pid)

    def kill(self, handle: Handle, wait: float = 5.0) -> None:
        """The process, its descendants and its process group; one that left both gets away."""
        handle.kill(family=True)
        handle.wait(wait)
