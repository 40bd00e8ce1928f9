"""Runs commands in a long-lived box, each with its own user, folder and variables. The base interpreter runs this.

A message on the control socket carries four open files: the standard input, output and error of a command, and a
socket. On that socket a request arrives as one line of JSON, and the exit code goes back as one line. If the other end
is closed before that, the command's session is killed. Processes that a command leaves in the background keep running.
The requests `put` and `get` transfer files as tar archives through their standard input and output.
"""

import os
import select
import signal
import socket
import sys
import tarfile
from contextlib import suppress
from json import loads
from typing import Any, NoReturn

from weavegen.box.user import become, begin

MAX_REQUEST_BYTES = 2**20


def main(descriptor: int) -> NoReturn:
    """Serve the control socket that the open file `descriptor` names as JSON, with a process for each request."""
    spec = begin(descriptor, "control")
    control = socket.socket(fileno=int(spec["control"]))
    os.umask(0o022)
    os.makedirs(spec["app"], exist_ok=True)  # buildah leaves creating it to whoever runs the image
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the processes of requests
    while True:
        data, received, _, _ = socket.recv_fds(control, 1, 4)
        if not data:
            os._exit(0)  # the process outside has ended
        if os.fork() == 0:
            control.close()
            serve(received[:3], socket.socket(fileno=received[3]))
        for number in received:
            os.close(number)


def serve(files: list[int], client: socket.socket) -> NoReturn:
    """Run the command that a client asks for, and tell its exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with client.makefile() as lines:
        request = loads(lines.readline(MAX_REQUEST_BYTES))
    child = os.fork()
    if child == 0:
        os.setsid()
        for number, file in enumerate(files):
            os.dup2(file, number)
        try:
            run(request)
        except (OSError, LookupError, tarfile.TarError) as error:
            os.write(2, f"{request.get('argv', ['file'])[0]}: {error}\n".encode())
            os._exit(126)
    for file in files:
        os.close(file)
    ended = os.pidfd_open(child)
    ready, _, _ = select.select([client.fileno(), ended], [], [])
    if ended not in ready:
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with suppress(OSError):
        client.sendall(b"%d\n" % (code if code >= 0 else 128 - code))
    os._exit(0)


def run(request: dict[str, Any]) -> NoReturn:
    """Do what a request says: `argv` is a command; `put` and `get` are the paths of files to write or read."""
    become(request["user"])
    os.environ.update(request["environ"])
    if "put" in request:
        os.makedirs(request["put"], exist_ok=True)
        with tarfile.open(fileobj=sys.stdin.buffer, mode="r|") as archive:
            archive.extraction_filter = getattr(tarfile, "fully_trusted_filter", None)  # it comes from outside the box
            archive.extractall(request["put"])
        os._exit(0)
    if "get" in request:
        with tarfile.open(fileobj=sys.stdout.buffer, mode="w|") as archive:
            archive.add(request["get"], arcname=".")
        sys.stdout.flush()
        os._exit(0)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and programs that it starts would, too
        signal.signal(number, signal.SIG_DFL)
    os.chdir(request["cwd"])
    os.execvp(request["argv"][0], request["argv"])
