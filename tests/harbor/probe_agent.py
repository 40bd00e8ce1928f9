"""An agent for the package `harbor` that tries everything an environment can do. `harbor run` imports it."""

import asyncio
import tempfile
from pathlib import Path

import pytest
from harbor.agents.base import BaseAgent
from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext


class Probe(BaseAgent):
    @staticmethod
    def name() -> str:
        return "probe"

    def version(self) -> str:
        return "1"

    async def setup(self, environment: BaseEnvironment) -> None:
        assert (await environment.exec("pwd; echo $GREETING")).stdout == "/work\nhello there\n"

    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        assert "6 * 7" in instruction
        await check_commands(environment)
        await check_files(environment)
        await check_ends(environment)
        await environment.exec("echo 42 > answer.txt")
        context.metadata = {"checked": True}


async def check_commands(environment: BaseEnvironment) -> None:
    ran = await environment.exec("echo out; echo err >&2; exit 7")
    assert (ran.stdout, ran.stderr, ran.return_code) == ("out\n", "err\n", 7)
    ran = await environment.exec("pwd; echo $OWN; id -un; echo $HOME", cwd="/tmp", env={"OWN": "a b"}, user="worker")
    assert ran.stdout == "/tmp\na b\nworker\n/home/worker\n"
    assert (await environment.exec("id -u", user=1500)).stdout == "1500\n"
    assert "no user" in (await environment.exec("true", user="nobody2")).stderr
    assert (await environment.exec("true", cwd="/missing")).return_code == 126
    assert (await environment.exec("kill -9 $$")).return_code == 137
    several = await asyncio.gather(*(environment.exec(f"sleep 0.2; echo {number}") for number in range(20)))
    assert [ran.stdout for ran in several] == [f"{number}\n" for number in range(20)]
    assert (await environment.exec("mount -t tmpfs none /mnt")).return_code != 0
    assert (await environment.exec("cat /proc/net/dev | grep -c :")).stdout == "1\n"  # the loopback alone


async def check_files(environment: BaseEnvironment) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        source, target = Path(scratch, "source"), Path(scratch, "target")
        (source / "deep" / "er").mkdir(parents=True)
        (source / "run.sh").write_text("#!/bin/sh\necho ran\n")
        (source / "run.sh").chmod(0o755)
        (source / "deep" / "er" / "data").write_bytes(bytes(range(256)) * 4096)
        await environment.upload_dir(source, "/new/place")
        assert (await environment.exec("/new/place/run.sh; stat -c %u /new/place/run.sh")).stdout == "ran\n0\n"
        await environment.upload_file(source / "run.sh", "/other/name.sh")
        await environment.exec("ln -s /etc/passwd /new/place/link; mkfifo /new/place/pipe")
        await environment.download_dir("/new/place", target)
        assert (target / "deep" / "er" / "data").read_bytes() == bytes(range(256)) * 4096
        assert sorted(path.name for path in target.iterdir()) == ["deep", "run.sh"]
        await environment.download_file("/other/name.sh", target / "name.sh")
        assert (target / "name.sh").read_text() == "#!/bin/sh\necho ran\n"
        with pytest.raises(RuntimeError, match="could not be copied"):
            await environment.download_file("/missing", target / "missing")


async def check_ends(environment: BaseEnvironment) -> None:
    """A background process lives on; a command that times out ends with its children."""
    await environment.exec("nohup sh -c 'while true; do date > /tmp/alive; sleep 0.1; done' > /dev/null 2>&1 &")
    with pytest.raises(RuntimeError, match="timed out after 1 s"):
        await environment.exec("sleep 100 & echo $! > /tmp/pid; wait", timeout_sec=1)
    await asyncio.sleep(0.3)
    assert (await environment.exec("kill -0 $(cat /tmp/pid)")).return_code != 0
    assert (await environment.exec("rm /tmp/alive; sleep 0.5; test -e /tmp/alive")).return_code == 0
