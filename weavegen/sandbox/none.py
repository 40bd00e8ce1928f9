"""The provider without isolation: environment processes run on the host as the user who started the worker.

It is for platforms without bubblewrap, and used only when it is named. All traces share the host's network, so two
of them can't serve the same port. A trace can read and delete every file that the user can.
"""

import os
import shutil
import sys
from pathlib import Path

from weavegen.sandbox.children import adopt, spawn
from weavegen.sandbox.providers import Box, Handle, Layout


class NoSandbox:
    name = "none"

    def layout(self, workspace: Path) -> Layout:
        code = Path(__file__).resolve().parents[2]
        return Layout(str(workspace), str(code), getattr(sys, "_base_executable", sys.executable))

    def uid(self, trace_id: int, workspaces: Path) -> int:
        return os.getuid()

    def require(self) -> None:
        """Nothing is required."""

    def start(self, box: Box) -> Handle:
        for name, folder in box.folders.items():
            link = box.workspace / name
            if not link.is_symlink():
                link.symlink_to(folder)
        limits, command = box.limits, list(box.command)
        if shutil.which("prlimit"):  # without --nproc, which would count all processes of the user
            numbers = (f"--as={limits.address_space}", f"--fsize={limits.file_size}", f"--nofile={limits.files}")
            command = ["prlimit", *numbers, "--core=0", "--", *command]
        environ = {"PATH": os.defpath, "HOME": str(box.workspace), "LANG": "C.UTF-8", **box.environ}
        process = spawn(command, box, pass_fds=box.descriptors, cwd=box.workspace, env=environ)
        adopt(process.pid, process)
        return Handle.of(process.pid)

    def kill(self, handle: Handle, wait: float = 5.0) -> None:
        """Kill the process, its descendants and its process group. A process that left both escapes."""
        handle.kill(family=True)
        handle.wait(wait)
