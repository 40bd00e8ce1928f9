"""Leaving the file system of the box, or changing what it shows."""

from tests.security.attacks.attack import Attack, lives, refused

FILESYSTEM = (
    Attack(
        "symbolic links",
        """
        os.symlink(told["secret"], "/app/link")
        os.symlink("/", "/app/root")
        os.symlink("/proc/self/fd", "/app/fds")
        return [got(text, "/app/link"), got(text, "/app/root" + told["secret"]), got(write, "/app/link")]
        """,
        lives,
    ),
    Attack(
        "hard links",
        """
        targets = [
            f"/app/tools/{sorted(os.listdir('/app/tools'))[0]}",
            "/etc/hosts",
            "/usr/bin/env",
            "/opt/weave/weavegen/box/api.py",
        ]
        return [got(os.link, target, f"/app/hard{number}") for number, target in enumerate(targets)]
        """,
        lives,
    ),
    Attack(
        "write to the system and to the code that runs it",
        """
        folders = [
            "/",
            "/usr",
            "/usr/bin",
            "/etc",
            "/opt/weave/weavegen/environment",
            "/app/tools",
            "/app/bootstraps",
            "/dev",
            "/var",
            "/lib",
        ]
        ways = [got(write, f"{folder}/{told['mark']}") for folder in folders]
        names = [
            "/etc/hosts",
            "/etc/passwd",
            "/opt/weave/weavegen/box/runner.py",
            "/opt/weave/weavegen/box/server.py",
        ]
        names += [f"/app/tools/{name}" for name in os.listdir("/app/tools") if name.endswith(".py")]
        ways += [got(lambda: os.close(os.open(name, os.O_WRONLY))) for name in names]
        return ways + [
            got(os.rename, "/app/tools", "/app/mine"),
            got(os.rmdir, "/app/bootstraps"),
            got(os.chmod, names[-1], 0o666),
        ]
        """,
        lives,
    ),
    Attack(
        "mount and unmount",
        """
        ways = [got(lambda: call("mount", b"tmpfs", b"/app/" + told["mark"].encode(), b"tmpfs", 0, 0))]
        ways += [
            got(lambda: call("mount", source, target, kind, flags, 0))
            for source, target, kind, flags in (
                (b"none", b"/tmp", b"tmpfs", 0),
                (b"proc", b"/tmp", b"proc", 0),
                (b"/", b"/tmp", 0, 0x1000),
                (b"/app/tools", b"/app/tools", 0, 0x1020),
            )
        ]
        ways += [
            got(lambda: call("umount2", target, 2)) for target in (b"/app/tools", b"/proc", b"/tmp", b"/")
        ]
        return ways + [
            subprocess.run(["mount", "-t", "tmpfs", "x", "/tmp"], capture_output=True).returncode
            and "mount fails"
            or "GOT"
        ]
        """,
        lives,
    ),
    refused(
        "the newer calls that mount",
        'call("fsopen", b"tmpfs", 0)',
        'call("open_tree", -100, b"/", 1)',
        'call("move_mount", 0, b"", -100, b"/tmp", 4)',
        'call("fsmount", 0, 0, 0)',
        'call("fspick", -100, b"/", 0)',
        'call("mount_setattr", -100, b"/", 0, b"x" * 32, 32)',
    ),
    Attack(
        "write to /proc and /sys",
        """
        names = [
            "sys/kernel/core_pattern",
            "sys/kernel/hostname",
            "sys/kernel/panic",
            "sys/vm/drop_caches",
            "sys/kernel/sysrq",
            "sysrq-trigger",
            "sys/net/ipv4/ip_forward",
            "sys/kernel/modprobe",
            "sys/fs/binfmt_misc/register",
            "self/uid_map",
            "1/mem",
            "irq/0/smp_affinity",
            "timer_list",
        ]
        ways = [got(write, "/proc/" + name, b"0") for name in names]
        return ways + [
            got(write, "/sys/" + name, b"0")
            for name in ("power/state", "kernel/uevent_helper", "fs/cgroup/cgroup.procs")
        ]
        """,
        lives,
    ),
    Attack(
        "device nodes",
        """
        kinds = [
            (stat.S_IFBLK, 254, 0),
            (stat.S_IFBLK, 8, 0),
            (stat.S_IFCHR, 1, 1),
            (stat.S_IFCHR, 10, 200),
            (stat.S_IFCHR, 4, 0),
        ]
        ways = [
            got(os.mknod, f"/tmp/{number}", kind | 0o666, os.makedev(major, minor))
            for number, (kind, major, minor) in enumerate(kinds)
        ]
        names = [
            "sda",
            "vda",
            "nvme0n1",
            "mem",
            "kmsg",
            "fuse",
            "kvm",
            "net/tun",
            "vsock",
            "vhost-vsock",
            "loop-control",
            "input",
            "uinput",
            "nvidia0",
            "autofs",
            "userfaultfd",
        ]
        return ways + [got(os.open, "/dev/" + name, os.O_RDWR) for name in names]
        """,
        lives,
    ),
    Attack(
        "core files",
        """
        resource.setrlimit(resource.RLIMIT_CORE, (resource.getrlimit(resource.RLIMIT_CORE)[1],) * 2)
        subprocess.run([sys.executable, "-c", "import ctypes; ctypes.string_at(0)"])
        subprocess.run([sys.executable, "-c", "import os; os.abort()"])
        cores = [name for name in os.listdir("/app") if "core" in name]
        return [
            got(resource.setrlimit, resource.RLIMIT_CORE, (2**20, 2**20)),
            "GOT core" if cores else "no core file",
        ]
        """,
        lives,
    ),
)
