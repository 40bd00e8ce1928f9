"""Starts the environment process inside the box. The base interpreter, without site-packages, calls `main`.

Only the folder `weavegen/box` is mounted, so nothing outside it can be imported.
"""

import os
import random
import shutil
import site
import socket
import sys

from weavegen.box import guard, importing
from weavegen.box.runner import Runner
from weavegen.box.server import SocketServer
from weavegen.box.user import become, begin


def copy_files(source: str, target: str) -> None:
    """Copy the initial files of the workspace. The user of the box owns the copies, but not `target`."""
    for entry in os.scandir(source):
        if entry.is_dir():
            shutil.copytree(entry.path, os.path.join(target, entry.name), copy_function=shutil.copyfile)
        else:
            shutil.copyfile(entry.path, os.path.join(target, entry.name))


def main(descriptor: int) -> None:
    """Serve the trace described by the open file `descriptor`, which `Environment.start` writes as JSON."""
    spec = begin(descriptor, "listener")
    os.umask(0o022)
    if spec["user"] is not None:
        os.makedirs(spec["app"], exist_ok=True)
        become(spec["user"])
    os.chdir(spec["app"])
    if spec["files"] is not None:
        copy_files(spec["files"], spec["app"])
    sys.path.insert(0, spec["app"])
    importing.prepare(spec["packages"], in_image=spec["user"] is not None)
    site.sethelper()  # `help`, which Python lacks without site-packages
    site.setquit()
    random.seed(int(spec["seed"]))
    output = guard.OutputCapture()
    server = SocketServer(socket.socket(fileno=int(spec["listener"])), output)
    runner = Runner(spec, server, output)
    server.start()
    runner.serve()
