"""The verifier of Harbor tasks: how it reads rewards, what honest work gets, and forgeries, none of which succeeds."""

from pathlib import Path

import pytest

from tests.harbor.world import World, write_task

FORGERIES = {
    "reward.txt before the tests": "mkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.txt",
    "reward.json before the tests": "mkdir -p /logs/verifier; echo '{\"reward\": 1}' > /logs/verifier/reward.json",
    "a link in place of the logs": "mkdir -p /logs /evil; echo 1 > /evil/reward.txt; ln -s /evil /logs/verifier",
    "a link to a reward": "mkdir -p /logs/verifier; echo 1 > /r; ln -s /r /logs/verifier/reward.json",
    "tests of its own": "mkdir -p /tests; printf '#!/bin/sh\\necho 1 > /logs/verifier/reward.txt\\n' > /tests/test.sh",
    "a link in place of the tests": "mkdir /mine; echo 'def test_a(): pass' > /mine/test_outputs.py; ln -s /mine /tests",
    "conftest beside the tests": "mkdir -p /tests; echo 'import os; os._exit(0)' > /tests/conftest.py",
    "conftest at the root": "echo 'import os; os._exit(0)' > /conftest.py",
    "pytest.ini at the root": "printf '[pytest]\\naddopts = --collect-only\\n' > /pytest.ini",
    "pyproject.toml at the root": "printf '[tool.pytest.ini_options]\\naddopts = \"--co\"\\n' > /pyproject.toml",
    "tox.ini at the root": "printf '[pytest]\\naddopts = --co\\n' > /tox.ini",
    "setup.cfg at the root": "printf '[tool:pytest]\\naddopts = --co\\n' > /setup.cfg",
    "another pytest": "printf '#!/bin/sh\\nexit 0\\n' > /usr/bin/pytest",
    "pytest earlier in PATH": "printf '#!/bin/sh\\nexit 0\\n' > /usr/local/bin/pytest; chmod +x /usr/local/bin/pytest",
    "pytest in sbin": "printf '#!/bin/sh\\nexit 0\\n' > /usr/local/sbin/pytest; chmod +x /usr/local/sbin/pytest",
    "pytest is a link": "ln -sf /bin/true /usr/bin/pytest; ln -s /bin/true /usr/local/bin/pytest-3",
    "another bash": "cp /bin/true /tmp/t; mv /usr/bin/bash /usr/bin/b2; cp /tmp/t /usr/bin/bash",
    "another sh": "printf '#!/usr/bin/bash\\necho 1 > /logs/verifier/reward.txt\\n' > /tmp/s; chmod +x /tmp/s; "
    "mv /tmp/s /usr/bin/sh",
    "another python": "printf '#!/bin/sh\\nexit 0\\n' > /usr/bin/python3; printf '#!/bin/sh\\n' > /usr/bin/python3.11",
    "python3 earlier in PATH": "printf '#!/bin/sh\\nexit 0\\n' > /usr/local/bin/python3; chmod +x /usr/local/bin/python3",
    "env replaced": "printf '#!/bin/sh\\nexit 0\\n' > /usr/bin/env",
    "chmod replaced": "printf '#!/bin/sh\\necho 1 > /logs/verifier/reward.txt; kill -9 $PPID\\n' > /usr/local/bin/chmod; "
    "/bin/chmod +x /usr/local/bin/chmod",
    "sitecustomize": "echo 'import os; os._exit(0)' > /usr/lib/python3/dist-packages/sitecustomize.py",
    "sitecustomize in local": "mkdir -p /usr/local/lib/python3.11/dist-packages; "
    "echo 'import os; os._exit(0)' > /usr/local/lib/python3.11/dist-packages/sitecustomize.py",
    "the image's sitecustomize": "echo 'import os; os._exit(0)' >> /etc/python3.11/sitecustomize.py",
    "usercustomize": "d=/root/.local/lib/python3.11/site-packages; mkdir -p $d; "
    "echo 'import os; os._exit(0)' > $d/usercustomize.py",
    "a .pth file": "echo 'import os; os._exit(0)' > /usr/lib/python3/dist-packages/x.pth",
    "a .pth file of the user": "d=/root/.local/lib/python3.11/site-packages; mkdir -p $d; "
    "echo 'import os; os._exit(0)' > $d/x.pth",
    "a module of pytest": "echo 'import os; os._exit(0)' > /usr/lib/python3/dist-packages/_pytest/config/__init__.py",
    "another pluggy": "d=/usr/local/lib/python3.11/dist-packages/pluggy; mkdir -p $d; "
    "echo 'import os; os._exit(0)' > $d/__init__.py",
    "pytest of the user": "d=/root/.local/lib/python3.11/site-packages/_pytest; mkdir -p $d; "
    "echo 'import os; os._exit(0)' > $d/__init__.py",
    "a standard module": "echo 'import os; os._exit(0)' > /usr/lib/python3.11/pathlib.py",
    "a standard module of the user": "d=/usr/local/lib/python3.11/dist-packages; mkdir -p $d; "
    "echo 'import os; os._exit(0)' > $d/iniconfig.py",
    "compiled modules": "cd /usr/lib/python3.11; echo 'import os; os._exit(0)' > /tmp/p.py; "
    "python3 -c \"import py_compile; py_compile.compile('/tmp/p.py', '__pycache__/pathlib.cpython-311.pyc', "
    'invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)"',
    "a pytest plugin": "d=/usr/local/lib/python3.11/dist-packages; mkdir -p $d/evil-1.0.dist-info; "
    "echo 'import os; os._exit(0)' > $d/evil.py; printf '[pytest11]\\nevil = evil\\n' > $d/evil-1.0.dist-info/entry_points.txt; "
    "printf 'Metadata-Version: 2.1\\nName: evil\\nVersion: 1.0\\n' > $d/evil-1.0.dist-info/METADATA",
    "preloaded library": "cp /lib/x86_64-linux-gnu/libm.so.6 /evil.so; echo /evil.so > /etc/ld.so.preload",
    "another C library": "echo broken > /lib/x86_64-linux-gnu/libc.so.6",
    "a cache of libraries": "mkdir /evil; cp /lib/x86_64-linux-gnu/libm.so.6 /evil/libz.so.1; echo /evil > /etc/ld.so.conf; "
    "ldconfig",
    "names resolved by a library": "sed -i 's/^passwd:.*/passwd: evil/' /etc/nsswitch.conf",
    "a folder of programs replaced": "cp -a /usr/bin /b; cp /bin/true /b/pytest; mv /usr/bin /usr/old; mv /b /usr/bin",
    "all packages removed": "rm -rf /usr/lib/python3/dist-packages; mkdir -p /usr/lib/python3/dist-packages/_pytest; "
    "echo 'import os; os._exit(0)' > /usr/lib/python3/dist-packages/pytest.py",
    "links at the top": "mkdir /nb; cp -a /usr/bin/. /nb; cp /bin/true /nb/pytest; rm /bin; ln -s /nb /bin",
    "a process that waits": "(setsid sh -c 'while :; do mkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.txt; done' "
    "> /dev/null 2>&1 &)",
    "the answer is a fifo": "rm -f answer.txt; mkfifo answer.txt",
    "no permission for anybody": "mkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.txt; chmod 000 /logs/verifier",
    "the user's shell": "sed -i 's#/bin/bash#/bin/true#' /etc/passwd; echo 'exit 0' > /root/.bashrc; "
    "echo 'exit 0' > /etc/bash.bashrc",
}
"""Shell scripts of an agent that is root of its box, none of which writes the right answer."""
HONEST = {
    "the answer": "echo 42 > answer.txt",
    "by another user": "chown worker /work; su worker -c 'echo 42 > answer.txt' || echo 42 > answer.txt",
    "with a program of its own": "printf '#!/bin/sh\\necho 42\\n' > /usr/local/bin/answer; chmod +x /usr/local/bin/answer; "
    "answer > answer.txt",
    "with a package of its own": "d=/usr/local/lib/python3.11/dist-packages; mkdir -p $d; echo 'value = 42' > $d/mine.py; "
    "python3 -c 'import mine; print(mine.value)' > answer.txt",
    "with settings and a moved folder": "echo set > /etc/mine.conf; mv data data2; python3 -c 'print(6 * 7)' > answer.txt",
    "after changes of programs": "rm /usr/bin/perl; echo 42 > answer.txt",
}


@pytest.mark.parametrize("name", FORGERIES)
def test_forgery(name: str, world: World, tmp_path: Path) -> None:
    trial = world.trial(write_task(tmp_path / "task"))
    trial.act(FORGERIES[name])
    verdict = trial.verify()
    assert verdict.rewards in (None, {"reward": 0.0}), verdict
    if verdict.rewards is None:
        assert verdict.cause == "agent", verdict


@pytest.mark.parametrize("name", HONEST)
def test_honest_work(name: str, world: World, tmp_path: Path) -> None:
    trial = world.trial(write_task(tmp_path / "task"))
    trial.act(HONEST[name])
    verdict = trial.verify()
    assert verdict.rewards == {"reward": 1.0}, verdict


def test_solution(world: World, tmp_path: Path) -> None:
    trial = world.trial(write_task(tmp_path / "task"))
    assert trial.verifier.solve(trial.changes).ended == ""
    assert trial.verify(trusted=True).rewards == {"reward": 1.0}


@pytest.mark.parametrize(
    ("script", "rewards", "cause"),
    [
        ("echo 0.25 > /logs/verifier/reward.txt", {"reward": 0.25}, None),
        ('echo \'{"a": 1, "b": 0.5}\' > /logs/verifier/reward.json', {"a": 1.0, "b": 0.5}, None),
        ("echo 1 > /logs/verifier/reward.txt; echo '{\"a\": 0}' > /logs/verifier/reward.json", {"a": 0.0}, None),
        ("true", None, "task"),
        (": > /logs/verifier/reward.txt", None, "task"),
        ("echo nan > /logs/verifier/reward.txt", None, "task"),
        ("echo yes > /logs/verifier/reward.txt", None, "task"),
        ("echo '{\"a\": true}' > /logs/verifier/reward.json", None, "task"),
        ('echo \'{"a": {"b": 1}}\' > /logs/verifier/reward.json', None, "task"),
        ("echo '{\"a\": NaN}' > /logs/verifier/reward.json", None, "task"),
        ("ln -s /etc/passwd /logs/verifier/reward.txt", None, "task"),
        ("test -e /work/answer.txt || echo 1 > /logs/verifier/reward.txt", None, "agent"),
        ("echo 'curl: (6) Could not resolve host: example.test'", None, "infrastructure"),
        ("sleep 30", None, "task"),
    ],
)
def test_rewards(
    script: str, rewards: dict[str, float] | None, cause: str | None, world: World, tmp_path: Path
) -> None:
    toml = {"task.toml": "version = '1.0'\n[verifier]\ntimeout_sec = 5.0\n"}
    trial = world.trial(write_task(tmp_path / "task", {"tests/test.sh": f"#!/bin/sh\n{script}\n", **toml}))
    trial.act("echo 41 > answer.txt")
    verdict = trial.verify()
    assert (verdict.rewards, verdict.cause) == (rewards, cause), verdict
