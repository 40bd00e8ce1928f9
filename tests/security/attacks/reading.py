"""Reading data of the host or of another trace."""

from tests.security.attacks.attack import Attack, lives

READING = (
    Attack(
        "read the host's files",
        """
        names = [
            told["secret"],
            told["home"],
            "/etc/shadow",
            "/root/.bashrc",
            "/root/.ssh",
            "/home",
            "/etc/hostname",
            "/etc/machine-id",
        ]
        return [got(os.listdir if os.path.isdir(name) else text, name) for name in names]
        """,
        lives,
        harmless=True,
    ),
    Attack(
        "find the secret anywhere in the file system",
        """
        wanted, seen = os.path.basename(os.path.dirname(told["secret"])), 0
        for folder, folders, files in os.walk("/", onerror=None):
            folders[:] = [name for name in folders if name not in ("usr", "proc", "lib", "lib64", "nix")]
            seen += 1
            if wanted in folders or "secret" in files:
                return "GOT " + folder
        return seen
        """,
        lives,
    ),
    Attack(
        "read the host's environment variables",
        """
        seen = dict(os.environ)
        for name in os.listdir("/proc"):
            if name.isdecimal():
                with open(f"/proc/{name}/environ", "rb") as file:
                    seen[name] = file.read().decode("latin-1")
        return str(seen)
        """,
    ),
    Attack(
        "read /proc of the host's processes",
        """
        pids = [name for name in os.listdir("/proc") if name.isdecimal()]
        found = "".join(text(f"/proc/{pid}/cmdline") for pid in pids)
        files = [
            f"/proc/{told[one]}/{name}"
            for one in ("victim", "worker")
            for name in ("environ", "maps", "mem")
        ]
        return [
            "GOT" if told["mark"] in found or len(pids) > 4 else "none of them is seen",
            *map(partial(got, text), files),
        ]
        """,
        lives,
        harmless=True,
    ),
    Attack(
        "read another trace's socket and workspace",
        """
        path, workspace, pid = told["neighbour"]
        ways = [
            got(connect, path, socket.AF_UNIX),
            got(os.listdir, workspace),
            got(text, f"/proc/{pid}/root/app/secret"),
        ]
        ways += [got(text, name) for name in ("/app/../app/secret", "/app/secret", "/tmp/secret")]
        return ways
        """,
        lives,
    ),
    Attack(
        "leave the box by /proc/self/root and its like",
        """
        roots = [
            "/proc/self/root",
            "/proc/1/root",
            "/proc/1/cwd",
            "/proc/self/cwd/..",
            "/proc/1/task/1/root",
            "/../../..",
        ]
        return [got(text, f"{root}{told['secret']}") for root in roots]
        """,
        lives,
    ),
    Attack(
        "read through inherited files",
        """
        found = []
        for pid in ("self", "1"):
            for fd in range(64):
                try:
                    target = os.readlink(f"/proc/{pid}/fd/{fd}")
                    for name in ("../../../../etc/shadow", "etc/shadow"):
                        found.append(got(lambda: os.open(name, os.O_RDONLY, dir_fd=int(fd))))
                    if target.startswith("/") and not target.startswith(
                        ("/dev", "/proc", "/app", "/usr", "/tmp")
                    ):
                        found.append("GOT " + target)
                except OSError:
                    pass
        return found
        """,
        lives,
    ),
    Attack(
        "read the kernel's secrets",
        """
        names = [
            "/proc/kcore",
            "/proc/kmsg",
            "/proc/vmcore",
            "/dev/mem",
            "/dev/kmem",
            "/dev/port",
            "/sys/kernel/security",
            "/sys/firmware",
            "/proc/sys/kernel/cap_last_cap/x",
            "/sys/fs/cgroup",
            "/boot",
        ]
        ways = [got(os.listdir if os.path.isdir(name) else text, name) for name in names]
        symbols = [line for line in open("/proc/kallsyms") if not line.startswith("0" * 8)][:1]
        return ways + ["GOT addresses" if symbols else "no addresses"]
        """,
    ),
)
