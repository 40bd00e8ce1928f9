"""weavegen in one container, as the image's ordinary user, with the privileges that docs/deploy.md lists."""

from collections.abc import Iterator

import pytest

from tests.image.podman import IMAGE, good, podman, privileges, run

HOME = "weavegen-test-home"
"""A volume."""
MOUNTED = f"--volume={HOME}:/var/lib/weavegen"
CALLS = """
import ctypes, errno, socket
libc = ctypes.CDLL(None, use_errno=True)
bpf, keyctl, setns = (321, 250, 308) if __import__("platform").machine() == "x86_64" else (280, 219, 268)
for number in (bpf, keyctl, setns):
    assert libc.syscall(number, -1, 0, 0, 0, 0) == -1 and ctypes.get_errno() == errno.EPERM, number
try:
    socket.socket(40)
except PermissionError:
    print("refused")
"""
"""Calls that deploy/seccomp.json refuses and that would fail otherwise in another way, and a socket of AF_VSOCK."""


@pytest.fixture
def volume() -> Iterator[None]:
    good(podman("volume", "create", HOME))
    yield
    good(podman("volume", "rm", "--force", HOME))


@pytest.mark.timeout(900)
@pytest.mark.usefixtures("volume")
def test_doctor_and_demo_run_without_network_on_a_read_only_root() -> None:
    name = "weavegen-test-demo"
    podman("rm", "--force", name)
    limits = ("--ulimit=nofile=4096:4096", "--ulimit=nproc=16384:16384", "--name", name, "--detach", MOUNTED)
    good(run(*privileges(), *limits, command=("sleep", "3600")))
    try:
        status = good(podman("exec", name, "cat", "/proc/1/status"))
        assert "\nUid:\t10001\t10001\t10001\t10001\n" in status
        assert "\nCapBnd:\t0000000000000000\n" in status
        assert "\nNoNewPrivs:\t1\n" in status
        good(podman("exec", name, "weavegen", "up"))
        assert "miss" not in good(podman("exec", name, "weavegen", "doctor"))
        good(podman("exec", name, "weavegen", "down"))
        assert "8 of 8 over, 0 failed" in good(podman("exec", name, "weavegen", "demo", timeout=600))
    finally:
        good(podman("rm", "--force", "--time", "5", name))


@pytest.mark.parametrize(
    ("without", "reason"), [("seccomp", "Can't set hostname"), ("systempaths", "Can't mount proc")]
)
def test_each_option_is_needed_and_doctor_says_so_in_a_line(without: str, reason: str) -> None:
    done = run(*privileges(without), command=("weavegen", "doctor"))
    assert done.returncode == 1
    [line] = [line for line in done.stdout.splitlines() if "bubblewrap" in line]
    assert line.startswith("miss bubblewrap")
    assert reason in line
    assert "docs/deploy.md" in line
    started = run(*privileges(without), "--tmpfs=/var/lib/weavegen", command=("weavegen", "up"))
    assert started.returncode == 2
    assert len(started.stderr.splitlines()) == 1


def test_other_obstacles_are_named_too() -> None:
    done = run(*privileges(), command=("weavegen", "doctor"))
    assert "ok   bubblewrap" in done.stdout
    assert "miss home" in done.stdout


def test_the_filter_of_system_calls_refuses_what_bubblewrap_does_without() -> None:
    assert good(run(*privileges(), command=("python", "-c", CALLS))) == "refused\n"


@pytest.mark.timeout(900)
def test_boxes_in_the_container_contain_all_attacks() -> None:
    done = run(*privileges(), "--tmpfs=/var/lib/weavegen", command=("weavegen", "doctor", "--sandbox"), timeout=800)
    assert good(done).splitlines()[-1].endswith("all contained")


def test_the_image_runs_as_an_ordinary_user() -> None:
    assert good(podman("image", "inspect", "--format", "{{.User}}", IMAGE)).strip() == "10001:10001"
