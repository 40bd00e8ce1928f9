"""How the process inside the box starts: by the base interpreter without site-packages, as `main(descriptor)`.

Beside it lie only the files of this folder that it imports. As process 1 of the box it forks at once: the parent
buries orphans and dies with its child, and with it everything in the box.
"""

import os
import random
import socket
import sys
import types
from json import loads

from weavegen.box import guard, weave
from weavegen.box.runner import Runner
from weavegen.box.server import Line


def bury_orphans() -> None:
    """As process 1: fork, and in the parent reap whatever dies, until the child does. Returns in the child."""
    child = os.fork()
    if child == 0:
        return
    null = os.open(os.devnull, os.O_RDWR)
    for number in (1, 2):
        os.dup2(null, number)
    os.closerange(3, 1024)
    while True:
        pid, status = os.wait()
        if pid == child:
            os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def main(descriptor: int) -> None:
    """Serve the trace that a file, made by `client.Environment.start`, describes."""
    if os.getpid() == 1:
        bury_orphans()
    with open(descriptor) as file:
        spec = loads(file.read())
    os.chdir(spec["app"])
    os.umask(0o022)
    listener = socket.socket(fileno=int(spec["listener"]))
    os.closerange(3, listener.fileno())
    os.closerange(listener.fileno() + 1, 1024)
    os.set_inheritable(listener.fileno(), False)
    sys.path.insert(0, spec["app"])
    sys.modules["weave"] = weave
    # Files written for weave-agent may import it although their tools come from here: an empty one will do.
    sys.modules.setdefault("libtmux", types.ModuleType("libtmux"))
    random.seed(int(spec["seed"]))
    output = guard.OutputCapture()
    line = Line(listener, output)
    runner = Runner(spec, line, output)
    line.start()
    runner.serve()
