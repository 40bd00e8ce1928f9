"""Locks on files that boxes share with each other and with the host."""

import os
import time
from pathlib import Path

from weavegen import config as configuration
from weavegen.folders import private
from weavegen.kernel.steps import Execute
from weavegen.sandbox.bubblewrap import BOX_FOLDER
from weavegen.sandbox.environment import Environment, locked
from weavegen.sandbox.image_root import PREFIX
from weavegen.sandbox.starting_files import IMPORTABLE
from weavegen.sandbox.watch import watching


def test_weavegen_locks_no_file_that_a_box_can_open(tmp_path: Path) -> None:
    """A box can lock what it can read, and so block whoever waits for the same lock."""
    config = configuration.load({"WEAVEGEN_HOME": str(tmp_path)})
    shared = [Path("/usr"), PREFIX, BOX_FOLDER, *IMPORTABLE.values()]
    with watching(private(config.runtime)), locked(private(config.runtime), 1):
        time.sleep(1.5)
        rows = [row.split() for row in Path("/proc/locks").read_text().splitlines()]
        mine = [row for row in rows if row[1] != "->" and row[4] == str(os.getpid())]
        opened = {os.stat(f"/proc/self/fd/{fd}").st_ino: os.readlink(f"/proc/self/fd/{fd}") for fd in fds()}
        held = [opened[int(row[5].rpartition(":")[2])] for row in mine]
    assert len(held) >= 2
    assert not [path for path in held if any(Path(path).is_relative_to(folder) for folder in shared)]


def fds() -> list[str]:
    return [fd for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")]


def test_locks_and_wakes_on_shared_files_cross_boxes(tmp_path: Path) -> None:
    """What docs/sandbox.md says is not prevented. If this fails, a new kernel or bubblewrap prevents it: say so."""
    config = configuration.load({"WEAVEGEN_HOME": str(tmp_path)})
    one, other = (Environment.start(config, trace) for trace in (1, 2))
    lock = "import fcntl\ndef action_a(self):\n    global file\n    file = open('/usr/bin/env', 'rb')\n"
    lock += "    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)\nself.add_action('a', action_a)\n"
    try:
        first = one.execute(1, Execute(op="bootstrap", source=lock))
        second = other.execute(1, Execute(op="bootstrap", source=lock))
    finally:
        one.stop()
        other.stop()
    assert first.error is None
    assert second.error is not None
    assert second.error.type == "BlockingIOError"


def test_tail_follows_a_file_without_inotify(tmp_path: Path) -> None:
    environment = Environment.start(configuration.load({"WEAVEGEN_HOME": str(tmp_path)}), 1)
    follow = "import subprocess, time\ndef action_a(self):\n    open('log', 'w').write('one\\n')\n"
    follow += "    tail = subprocess.Popen(['tail', '-f', 'log'], stdout=subprocess.PIPE, text=True)\n"
    follow += "    first = tail.stdout.readline()\n    open('log', 'a').write('two\\n')\n"
    follow += "    second = tail.stdout.readline()\n    tail.kill()\n    return [first, second]\n"
    follow += "self.add_action('a', action_a)\n"
    try:
        assert environment.execute(1, Execute(op="bootstrap", source=follow)).value == ["one\n", "two\n"]
    finally:
        environment.stop()
