"""A box with an image: what its root can do, what it can't reach, its limits, and the agent's Python in it."""

import json
import os
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest

from tests.harbor.world import FILES, Trial, World, write_task
from weavegen.harbor.verifier import limits_of, root_of
from weavegen.kernel.steps import Execute
from weavegen.sandbox import command, images, userns
from weavegen.sandbox.environment import Environment, remove


@pytest.fixture(scope="module")
def trial(world: World, tmp_path_factory: pytest.TempPathFactory) -> Trial:
    return world.trial(write_task(tmp_path_factory.mktemp("task")))


def test_root_of_the_image(trial: Trial) -> None:
    ran = trial.act(
        "id -u; pwd; echo $GREETING $PLACE; cat data/numbers.txt; touch /etc/mine; chown 1500:7 /etc/mine; "
        "stat -c %u:%g /etc/mine; cat /etc/hosts | head -1; echo $HOME"
    )
    assert ran.output.split("\n")[:-1] == [
        "0", "/work", "hello there /work", "6 7", "1500:7", "127.0.0.1 localhost", "/root",
    ]  # fmt: skip
    owner = (trial.changes / "upper" / "etc" / "mine").stat()
    if os.getuid() == 0:
        assert (owner.st_uid, owner.st_gid) == (userns.FIRST_ID + 1500, userns.FIRST_ID + 7)
    else:
        assert owner.st_uid not in (0, 1500, os.getuid())


def test_home_of_the_image(world: World, tmp_path: Path) -> None:
    """As in a container, a variable of the image has priority over /etc/passwd."""
    dockerfile = FILES["environment/Dockerfile"] + "ENV HOME=/opt/tool\n"
    trial = world.trial(write_task(tmp_path / "task", {"environment/Dockerfile": dockerfile}))
    assert trial.act("echo $HOME", user="worker").output == "/opt/tool\n"


def test_programs_that_would_write_to_the_kernels_audit(trial: Trial) -> None:
    ran = trial.act(
        "useradd guest && su guest -c 'id -un' && runuser -u guest -- id -un && groupadd others && echo done"
    )
    assert ran.output == "guest\nguest\ndone\n"


def test_a_user_that_is_a_number_has_the_group_of_root(world: World, tmp_path: Path) -> None:
    dockerfile = FILES["environment/Dockerfile"] + "USER 4711\n"
    trial = world.trial(write_task(tmp_path / "task", {"environment/Dockerfile": dockerfile}))
    assert trial.act("id -u; id -g").output == "4711\n0\n"


def test_with_the_hosts_network(trial: Trial) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        connect = f"exec 3<>/dev/tcp/127.0.0.1/{server.getsockname()[1]} && echo connected; cat /etc/resolv.conf"
        ran = trial.act(connect, network="host")
        assert ran.output == "connected\n" + Path("/etc/resolv.conf").read_text()
        assert "connected" not in trial.act(connect).output


def test_another_user(trial: Trial) -> None:
    ran = trial.act("id -un; echo $HOME; touch /etc/x; echo $(touch /home/worker/y && echo written)", user="worker")
    assert "worker\n/home/worker\n" in ran.output
    assert "Permission denied" in ran.output
    assert ran.output.endswith("written\n")
    assert "1500\n" in trial.act("id -u", user="1500").output
    assert trial.act("id -gn", user="worker:games").output == "games\n"
    assert "no-such-group" in trial.act("true", user="worker:no-such-group").output
    assert "no user 'nobody2'" in trial.act("true", user="nobody2").output


@pytest.mark.parametrize(
    "script",
    [
        "mount -t tmpfs none /mnt",
        "mount --bind / /mnt",
        "umount /proc",
        "umount /opt/weave",
        "unshare -U true",
        "unshare -m true",
        "nsenter -t 1 -m true",
        "mknod /sda b 8 0",
        "mknod /white c 0 0",
        "echo 1 > /proc/sys/kernel/panic",
        "echo c > /proc/sysrq-trigger",
        "hostname other",
        "date -s 2000-01-01",
        "dmesg",
        "ls /opt/weave/host/root/.ssh",
        "touch /opt/weave/mine",
        "touch /opt/weave/host/usr/mine",
        "ls /proc/1/root/../work/main",
        "kill -0 $(ls /proc | grep -E '^[0-9]+$' | sort -n | tail -1) && kill -0 99999",
        'python3 -c "import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW)"',
        "python3 -c \"import socket; socket.create_connection(('192.0.2.1', 80), 1)\"",
        "python3 -c \"import os; os.setxattr('/work', 'user.overlay.opaque', b'y')\" && false",
        'python3 -c "import ctypes; c = ctypes.CDLL(None); exit(c.syscall(321, 0, 0, 0) < 0)"',
    ],
)
def test_what_root_can_not_do(script: str, trial: Trial) -> None:
    ran = trial.act(f"({script}) > /dev/null 2>&1 && echo DONE || echo REFUSED")
    assert ran.output == "REFUSED\n", ran.output


def test_host_is_not_reached(trial: Trial) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        script = f"python3 -c \"import socket; socket.create_connection(('127.0.0.1', {port}), 2)\" && echo REACHED"
        assert "REACHED" not in trial.act(script).output
    outside = [line for line in trial.act("cat /proc/mounts").output.splitlines() if "/opt/weave/host" in line]
    assert outside
    assert all(" ro," in line for line in outside)


def test_limits(trial: Trial) -> None:
    ran = trial.act('python3 -c "import time; b = bytearray(900 * 2**20); time.sleep(20)" && echo TOOK')
    assert "TOOK" not in ran.output
    assert ran.seconds < 15
    ran = trial.act("for i in $(seq 3000); do sleep 90 & done; echo; jobs | wc -l")
    assert "retry" in ran.output or "Resource temporarily unavailable" in ran.output
    ran = trial.act("dd if=/dev/zero of=/big bs=1M count=400 2>&1; stat -c %s /big; rm /big")
    assert int(ran.output.split()[-1]) <= 200 * 2**20


def test_deleted_files_that_are_open_take_room_on_the_disk(trial: Trial) -> None:
    """Each file is below the limit of 200 MB."""
    code = """
import os, time
for number in range(6):
    file = os.open(f"/big{number}", os.O_CREAT | os.O_WRONLY)
    os.unlink(f"/big{number}")
    for _ in range(50):
        os.write(file, bytes(2**20))
time.sleep(30)
"""
    ran = trial.act(f"python3 -c '{code}' && echo TOOK")
    assert "TOOK" not in ran.output
    assert ran.ended == "it has written more than 200 MB to its disk"


def test_changes_of_one_trial_are_not_those_of_another(world: World, tmp_path: Path) -> None:
    place = write_task(tmp_path / "task")
    first, second = world.trial(place), world.trial(place)
    first.act("echo mine > /etc/mine; rm -rf /work/data; echo x >> /etc/passwd")
    assert second.act("ls /etc/mine /work/data; tail -1 /etc/passwd").output.count("mine") == 1  # the error message
    assert "worker" in second.act("tail -1 /etc/passwd").output


def test_image_without_python(world: World, tmp_path: Path) -> None:
    """The agent's own Python process uses an interpreter that is not in the image."""
    dockerfile = FILES["environment/Dockerfile"] + "RUN rm -rf /usr/bin/python3* /usr/lib/python3*\n"
    trial = world.trial(write_task(tmp_path / "task", {"environment/Dockerfile": dockerfile}))
    root = root_of(world.config, trial.task, trial.verifier.image, trial.task.steps[0].agent, trial.changes)
    environment = Environment.start(world.config, trial.verifier.trace_id, limits=limits_of(trial.task), root=root)
    try:
        code = "import ssl, os; open('answer.txt', 'w').write(os.getcwd())"
        call = json.dumps({"name": "python", "arguments": {"code": code}})
        assert environment.execute(1, Execute(op="call", source=call)).value["success"]
        call = '{"name": "terminal", "arguments": {"command": "command -v python3; cat answer.txt"}}'
        assert environment.execute(2, Execute(op="call", source=call)).value["output"].startswith("/work")
    finally:
        environment.stop()
    assert (trial.changes / "upper" / "work" / "answer.txt").read_text() == "/work"
    remove(world.config, trial.verifier.trace_id)
    assert not trial.changes.exists()


def test_many_boxes_at_once(world: World, tmp_path: Path) -> None:
    """Each has its own processes."""
    place = write_task(tmp_path / "task")
    outputs: list[str] = []
    trials = [world.trial(place) for _ in range(8)]

    def act(one: Trial) -> None:
        outputs.append(one.act("ls /proc | grep -cE '^[0-9]+$'; sleep 1").output)

    threads = [threading.Thread(target=act, args=(one,)) for one in trials]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outputs) == 8
    assert all(int(output) < 10 for output in outputs)


def test_time_limit(trial: Trial) -> None:
    began = time.monotonic()
    root = root_of(trial.world.config, trial.task, trial.verifier.image, trial.task.steps[0].agent, trial.changes)
    ran = command.run(
        trial.world.config, root, ["/bin/sh", "-c", "setsid sleep 100 & sleep 100"], seconds=2,
        limits=limits_of(trial.task), name=f"{trial.verifier.trace_id}/time",
    )  # fmt: skip
    assert ran.ended == "its time of 2 seconds was up"
    assert time.monotonic() - began < 60


@pytest.mark.skipif(os.getuid() != 0, reason="builds as another user")
def test_base_of_a_folder(world: World, base: Path, tmp_path: Path) -> None:
    folder = tmp_path / "root"
    folder.mkdir()
    subprocess.run(["tar", "-C", folder, "--exclude=./dev", "-xf", base], check=True)
    images.add_base(world.config, "weavegen.test/folder", folder)
    files = {"environment/Dockerfile": "FROM weavegen.test/folder\nWORKDIR /work\n"}
    trial = world.trial(write_task(tmp_path / "task", files))
    assert trial.act("cat /etc/debian_version").output.startswith("12")
