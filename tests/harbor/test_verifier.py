"""The verifier of Harbor tasks: how it reads rewards, what honest work gets, and forgeries, none of which succeeds."""

from pathlib import Path

import pytest

from tests.harbor.world import BASE, FILES, TOML, World, write_task

FORGERIES = {
    "reward.txt before the tests": "mkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.txt",
    "reward.json before the tests": "mkdir -p /logs/verifier; echo '{\"reward\": 1}' > /logs/verifier/reward.json",
    "a link in place of the logs": "mkdir /evil; echo 1 > /evil/reward.txt; rm -r /logs/verifier; ln -s /evil /logs/verifier",
    "a link in place of all logs": "mkdir -p /evil/verifier; echo 1 > /evil/verifier/reward.txt; rm -r /logs; ln -s /evil /logs",
    "a link to a reward": "mkdir -p /logs/verifier; echo 1 > /r; ln -s /r /logs/verifier/reward.json",
    "tests of its own": "mkdir -p /tests; printf '#!/bin/sh\\necho 1 > /logs/verifier/reward.txt\\n' > /tests/test.sh",
    "a link in place of the tests": "mkdir /mine; echo 'def test_a(): pass' > /mine/test_outputs.py; ln -s /mine /tests",
    "conftest beside the tests": "mkdir -p /tests; echo 'import os; os._exit(0)' > /tests/conftest.py",
    "conftest at the root": "echo 'import os; os._exit(0)' > /conftest.py",
    "pytest.ini at the root": "printf '[pytest]\\naddopts = --collect-only\\n' > /pytest.ini",
    "pyproject.toml at the root": "printf '[tool.pytest.ini_options]\\naddopts = \"--co\"\\n' > /pyproject.toml",
    "tox.ini at the root": "printf '[pytest]\\naddopts = --co\\n' > /tox.ini",
    "setup.cfg at the root": "printf '[tool:pytest]\\naddopts = --co\\n' > /setup.cfg",
    "hidden settings at the root": "printf '[pytest]\\naddopts = --co\\n' | tee /.pytest.ini > /pytest.ini",
    "pytest.toml at the root": "printf '[pytest]\\naddopts = [\"--co\"]\\n' | tee /.pytest.toml > /pytest.toml",
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
    "standard modules as an archive": "python3 -c \"import zipfile; zipfile.ZipFile('/usr/lib/python311.zip', 'w')"
    ".writestr('pathlib.py', 'import os; os._exit(0)')\"",
    "a package before a module": "d=/usr/lib/python3/dist-packages/_pytest/main; mkdir $d; "
    "echo 'import os; os._exit(0)' > $d/__init__.py",
    "packages by a link": "mkdir -p /evil/pluggy; echo 'import os; os._exit(0)' > /evil/pluggy/__init__.py; "
    "rm -rf /usr/local/lib/python3.11/dist-packages; mkdir -p /usr/local/lib/python3.11; "
    "ln -s /evil /usr/local/lib/python3.11/dist-packages",
    "packages of the user by a link": "mkdir -p /evil/pluggy /root/.local/lib/python3.11; "
    "echo 'import os; os._exit(0)' > /evil/pluggy/__init__.py; ln -s /evil /root/.local/lib/python3.11/site-packages",
    "compiled modules by a link": "mkdir /evil; echo 'import os; os._exit(0)' > /tmp/p.py; "
    "python3 -c \"import py_compile; py_compile.compile('/tmp/p.py', '/evil/pathlib.cpython-311.pyc', "
    'invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)"; '
    "rm -rf /usr/lib/python3.11/__pycache__; ln -s /evil /usr/lib/python3.11/__pycache__",
    "a plugin by a link": "d=/usr/local/lib/python3.11/dist-packages; mkdir -p $d/evil-1.0.dist-info; "
    "echo 'import os; os._exit(0)' > $d/evil.py; printf '[pytest11]\\nevil = evil\\n' > /evil; "
    "ln -s /evil $d/evil-1.0.dist-info/entry_points.txt; "
    "printf 'Metadata-Version: 2.1\\nName: evil\\nVersion: 1.0\\n' > $d/evil-1.0.dist-info/METADATA",
    "a plugin as a fifo": "d=/usr/local/lib/python3.11/dist-packages/evil-1.0.dist-info; mkdir -p $d; "
    "mkfifo $d/entry_points.txt",
    "a large plugin": "d=/usr/local/lib/python3.11/dist-packages/evil-1.0.dist-info; mkdir -p $d; "
    "truncate -s 150M $d/entry_points.txt",
    "all programs by a link": "mkdir -p /work/u/local/bin; printf '#!/bin/sh\\nexit 0\\n' > /work/u/local/bin/pytest; "
    "chmod +x /work/u/local/bin/pytest; "
    "python3 -c \"import os, shutil; shutil.rmtree('/usr', ignore_errors=True); os.symlink('work/u', '/usr')\"",
    "many folders in one another": "python3 -c \"import os\nfor _ in range(1200): os.mkdir('d'); os.chdir('d')\n"
    "open('x.pth', 'w')\"",
    "a name that is no text": "cd /usr/lib/python3/dist-packages; touch $(printf 'evil\\377.pth')",
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
    "by another user": "chown worker /work; su worker -c 'echo 42 > answer.txt'",
    "with a program of its own": "printf '#!/bin/sh\\necho 42\\n' > /usr/local/bin/answer; chmod +x /usr/local/bin/answer; "
    "answer > answer.txt",
    "with a package of its own": "d=/usr/local/lib/python3.11/dist-packages; mkdir -p $d; echo 'value = 42' > $d/mine.py; "
    "python3 -c 'import mine; print(mine.value)' > answer.txt",
    "with settings and a moved folder": "echo set > /etc/mine.conf; mv data data2; python3 -c 'print(6 * 7)' > answer.txt",
    "after changes of programs": "rm /usr/bin/perl; echo 42 > answer.txt",
}


MODULES = {
    "a module": "echo 'import os; os._exit(0)' > argparse.py",
    "a package": "mkdir argparse; echo 'import os; os._exit(0)' > argparse/__init__.py",
    "a module of pytest's": "echo 'import os; os._exit(0)' > iniconfig.py",
    "a folder by a link": "mkdir /w; echo 'import os; os._exit(0)' > /w/argparse.py; cd /; mv /work /work2; ln -s /w /work",
}
"""Forgeries where the tests are started by `python3 -m pytest`, which finds modules in its working folder."""
TESTS_IN_PLACE = """#!/bin/sh
reward=0
python3 -m pytest /tests/test_outputs.py && reward=1
echo $reward > /logs/verifier/reward.txt
"""


def test_alternatives_by_a_link(world: World, tmp_path: Path) -> None:
    script = "#!/bin/sh\nawk 'BEGIN {print 0}' > /logs/verifier/reward.txt\n"
    trial = world.trial(write_task(tmp_path / "task", {"tests/test.sh": script}))
    trial.act(
        "cp -a /etc/alternatives /e; printf '#!/bin/sh\\necho 1' > /forged; chmod +x /forged; "
        "ln -sf /forged /e/awk; rm -rf /etc/alternatives; ln -s /e /etc/alternatives; awk"
    )
    verdict = trial.verify()
    assert verdict.rewards in (None, {"reward": 0.0}), verdict


INSTALLS = """#!/bin/bash
export HOME=/root
curl -LsSf https://example.test/install.sh | sh
source $HOME/.local/bin/env
reward=0
uvx -w pytest pytest /tests/test_outputs.py && reward=1
echo $reward > /logs/verifier/reward.txt
"""
"""As most tasks do it. The image has neither curl nor uvx."""
PREPARED = {
    "uvx": "printf '#!/bin/sh\nexit 0\n' > /usr/local/bin/uvx; chmod +x /usr/local/bin/uvx",
    "what the installer keeps": "mkdir -p /root/.local/bin; echo 'uvx() { true; }' > /root/.local/bin/env",
    "curl": "printf '#!/bin/sh\necho \"mkdir -p /root/.local/bin; echo uvx\\(\\) { true\\; } > /root/.local/bin/env\"\n' "
    "> /usr/local/bin/curl; chmod +x /usr/local/bin/curl",
}


OTHERS = {name: (TESTS_IN_PLACE, script) for name, script in MODULES.items()}
OTHERS |= {f"prepared: {name}": (INSTALLS, script) for name, script in PREPARED.items()}


@pytest.mark.parametrize("name", OTHERS)
def test_forgery_of_other_tests(name: str, world: World, tmp_path: Path) -> None:
    tests, script = OTHERS[name]
    trial = world.trial(write_task(tmp_path / "task", {"tests/test.sh": tests}))
    trial.act(script)
    verdict = trial.verify()
    assert verdict.rewards in (None, {"reward": 0.0}), verdict


@pytest.mark.parametrize(
    "place", ["WORKDIR /usr/src/app", "WORKDIR /app\nENV PATH=/app/bin:$PATH", "WORKDIR /app\nENV PATH=/app:$PATH"]
)
def test_work_beside_programs_is_not_hidden(place: str, world: World, tmp_path: Path) -> None:
    files = {
        "environment/Dockerfile": f"FROM {BASE}\n{place}\nRUN mkdir bin && echo old > answer.txt\n",
        "tests/test.sh": "#!/bin/sh\nif grep -q 42 answer.txt; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n",
    }
    trial = world.trial(write_task(tmp_path / "task", files))
    trial.act("echo 42 > answer.txt")
    verdict = trial.verify()
    assert (verdict.rewards, verdict.changed) == ({"reward": 1.0}, ()), verdict


@pytest.mark.parametrize(
    "script",
    [
        "# A comment before the interpreter.\n#!/bin/bash\n[[ a == a ]]",
        "#!/bin/bash\nset -e\necho begun > /dev/stderr; echo begun > /dev/stdout",
        "#!/bin/bash\nyes | head -1; test ${PIPESTATUS[0]} = 141",
        "#!/bin/bash\necho '127.0.0.1 extra.test' >> /etc/hosts && getent hosts extra.test",
    ],
)
def test_tests_run_as_in_a_container(script: str, world: World, tmp_path: Path) -> None:
    script += " && echo 1 > /logs/verifier/reward.txt\n"
    verdict = world.trial(write_task(tmp_path / "task", {"tests/test.sh": script})).verify()
    assert verdict.rewards == {"reward": 1.0}, verdict


def test_modules_of_the_agent_s_own_stay(world: World, tmp_path: Path) -> None:
    test = "import utils\n\n\ndef test_answer():\n    assert utils.answer() == 42\n"
    files = {"tests/test.sh": TESTS_IN_PLACE, "tests/test_outputs.py": test}
    trial = world.trial(write_task(tmp_path / "task", files))
    trial.act("mkdir json; echo '{}' > json/a.json; echo 'def answer(): return 42' > utils.py")
    verdict = trial.verify()
    assert (verdict.rewards, verdict.changed) == ({"reward": 1.0}, ()), verdict


def test_links_of_a_task_are_not_followed(world: World, tmp_path: Path) -> None:
    """Modes of the host's files do not change, whatever links a task has in its folders."""
    outside = tmp_path / "outside"
    outside.write_text("#!/bin/sh\n")
    outside.chmod(0o600)
    place = write_task(tmp_path / "task")
    for name in ("environment/x", "tests/x", "solution/x"):
        (place / name).symlink_to(outside)
    (place / "solution" / "solve.sh").unlink()
    (place / "solution" / "solve.sh").symlink_to(outside)
    trial = world.trial(place)
    trial.verifier.solve(trial.changes)
    trial.verify()
    assert outside.stat().st_mode & 0o777 == 0o600


def test_hidden_names_are_text(world: World, tmp_path: Path) -> None:
    trial = world.trial(write_task(tmp_path / "task"))
    trial.act("echo 42 > answer.txt; touch $(printf '/evil\\377.pth')")
    verdict = trial.verify()
    assert verdict.rewards == {"reward": 1.0}
    assert verdict.changed == ("/evil\ufffd.pth",)


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
        ("apt-get -o Acquire::Retries=0 update; echo 0 > /logs/verifier/reward.txt", None, "infrastructure"),
        ("apt-get -o Acquire::Retries=0 update; echo 1 > /logs/verifier/reward.txt", {"reward": 1.0}, None),
        (
            "echo 'Failed to establish a new connection: [Errno 111] Connection refused'; echo 0 > /logs/verifier/reward.txt",
            {"reward": 0.0},
            None,
        ),
        ("sleep 30", None, "task"),
        ("rm -rf /logs", None, "task"),
        (f"echo '{{\"a\": 1{'0' * 400}}}' > /logs/verifier/reward.json", None, "task"),
        ("echo '{\"a\\u0000\\ud800\": 1}' > /logs/verifier/reward.json", {"a\\x00\\ud800": 1.0}, None),
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


def test_tests_that_install_their_programs_give_no_zero_for_right_work(world: World, tmp_path: Path) -> None:
    """Most public tasks have such a test.sh, which writes 0 if it has no network."""
    installs = INSTALLS.replace("#!/bin/bash", "#!/bin/bash\napt-get update\napt-get install -y curl")
    trial = world.trial(write_task(tmp_path / "task", {"tests/test.sh": installs}))
    trial.act("echo 42 > answer.txt")
    verdict = trial.verify()
    assert (verdict.rewards, verdict.cause) == (None, "infrastructure"), verdict
    assert verdict.why == "no reward is above 0; the tests want a network: --network host gives them one"


@pytest.mark.parametrize("mode", ["no-network", "public"])
def test_a_zero_that_no_network_would_change_stays(mode: str, world: World, tmp_path: Path) -> None:
    """The words come from the agent, or the task forbids its tests the network."""
    words = "Could not resolve host"
    script = "cat /work/answer.txt\n" if mode == "public" else f"echo {words}\n"
    files = {"task.toml": TOML + f'network_mode = "{mode}"\n'}
    files["tests/test.sh"] = f"#!/bin/sh\n{script}echo 0 > /logs/verifier/reward.txt\n"
    trial = world.trial(write_task(tmp_path / "task", files))
    trial.act(f"echo {words} > answer.txt")
    verdict = trial.verify()
    assert words in verdict.output
    assert verdict.rewards == {"reward": 0.0}, verdict


STARTS = """#!/bin/sh
answer=$(python3 /work/solve.py)
echo "$answer"
if [ "$answer" = 42 ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
"""
"""Tests that start a program of the agent, as most coding tasks do."""
FORGES = "import json\njson.dump({'reward': 1}, open('/logs/verifier/reward.json', 'w'))\n"
"""A program that writes the reward."""


def test_a_program_that_the_tests_start_can_not_write_reward_json(world: World, tmp_path: Path) -> None:
    trial = world.trial(write_task(tmp_path / "task", {"tests/test.sh": STARTS}))
    trial.act(f"cat > solve.py << 'EOF'\n{FORGES}EOF")
    verdict = trial.verify()
    assert (verdict.rewards, verdict.cause) == (None, "agent"), verdict
    assert verdict.why == "reward.json does not come from the tests"
    trial.act("echo 'print(42)' > solve.py")
    assert trial.verify().rewards == {"reward": 1.0}


def test_a_program_that_the_tests_start_as_another_user_can_not_write_rewards(world: World, tmp_path: Path) -> None:
    """As docs/harbor.md recommends it."""
    starts = STARTS.replace("python3 /work/solve.py", "chmod 700 /logs/verifier; su worker -c 'python3 /work/solve.py'")
    trial = world.trial(write_task(tmp_path / "task", {"tests/test.sh": starts}))
    loop = "import os\nif os.fork():\n    os._exit(0)\nos.close(1)\nwhile True:\n    try:\n        for name in ('json', 'txt'):\n"
    loop += "            open('/logs/verifier/reward.' + name, 'w').write('1')\n    except OSError:\n        pass\n"
    trial.act(f"cat > solve.py << 'EOF'\n{loop}EOF")
    assert trial.verify().rewards == {"reward": 0.0}
    trial.act("echo 'print(42)' > solve.py")
    assert trial.verify().rewards == {"reward": 1.0}


def test_a_program_of_the_image_may_write_reward_json(world: World, tmp_path: Path) -> None:
    """No file of the tests names it, but it is there without the agent's work, too."""
    grade = '#!/bin/sh\ngrep -q 42 answer.txt && n=1\necho "{\\"a\\": ${n:-0}}" > /logs/verifier/reward.json\n'
    files = {
        "environment/Dockerfile": FILES["environment/Dockerfile"] + "COPY --chmod=755 grade /usr/bin/grade\n",
        "environment/grade": grade,
        "tests/test.sh": "#!/bin/sh\ngrade\n",
    }
    trial = world.trial(write_task(tmp_path / "task", files))
    trial.act("echo 42 > answer.txt")
    assert trial.verify().rewards == {"a": 1.0}


def test_any_user_may_write_logs_and_the_tests_see_artifacts(world: World, tmp_path: Path) -> None:
    script = (
        "test -e /logs/artifacts/a -a -e /logs/agent/b -a ! -e /logs/verifier/c && echo 1 > /logs/verifier/reward.txt\n"
    )
    trial = world.trial(write_task(tmp_path / "task", {"tests/test.sh": "#!/bin/sh\n" + script}))
    assert trial.act("cd /logs && touch artifacts/a agent/b verifier/c", user="worker").output == ""
    assert trial.verify().rewards == {"reward": 1.0}
    files = {"solution/solve.sh": "#!/bin/sh\ncp /proc/version /logs/artifacts/a && touch /logs/agent/b\n"}
    trial = world.trial(write_task(tmp_path / "other", {"tests/test.sh": "#!/bin/sh\n" + script, **files}))
    trial.verifier.solve(trial.changes)
    assert trial.verify(trusted=True).rewards == {"reward": 1.0}


def test_output_of_the_tests_is_text(world: World, tmp_path: Path) -> None:
    script = "#!/bin/sh\nprintf 'a\\000b\\377'; echo 1 > /logs/verifier/reward.txt\n"
    trial = world.trial(write_task(tmp_path / "task", {"tests/test.sh": script}))
    assert trial.verify().output == "a\ufffdb\ufffd"
