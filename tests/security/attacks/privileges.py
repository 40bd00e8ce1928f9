"""Gaining privileges, and making system calls that only privileged users may make."""

import platform

from tests.security.attacks.attack import Attack, lives, refused

X86 = platform.machine() == "x86_64"
NAMESPACES = (0x80, 0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000)
"""CLONE_NEWTIME, NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET."""
PRIVILEGES = (
    Attack(
        "become root",
        """
        ways = [
            got(os.setuid, 0),
            got(os.setreuid, 0, 0),
            got(os.setresuid, 0, 0, 0),
            got(os.setgid, 0),
            got(os.setgroups, [0]),
        ]
        ways += [
            got(os.setfsuid, 0) if hasattr(os, "setfsuid") else "none",
            got(os.chown, "/app/tools", 1, 1),
        ]
        return ways + ["GOT" if 0 in (*os.getresuid(), *os.getresgid()) else "not root"]
        """,
        lives,
    ),
    Attack(
        "programs that make one root",
        """
        os.system("cp /bin/sh /app/sh; chmod 6755 /app/sh")
        tries = [
            ["su", "-c", "id -u"],
            ["sudo", "-n", "id", "-u"],
            ["pkexec", "id", "-u"],
            ["newgrp", "root"],
            ["/app/sh", "-p", "-c", "id -u"],
        ]
        said = []
        for command in tries:
            try:
                said.append(
                    subprocess.run(
                        command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=2
                    ).stdout.strip()
                )
            except Exception as error:
                said.append(type(error).__name__)
        return ["GOT root" if "0" in said else "nobody is root"]
        """,
        lives,
    ),
    Attack(
        "capabilities",
        """
        data = struct.pack("6I", 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF)
        header = struct.pack("Ii", 0x20080522, 0)
        number = {"x86_64": 126}.get(platform.machine(), 91)
        ways = [got(lambda: call(number, header, data))]
        for name in text("/proc/self/status").splitlines():
            if name.startswith(("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")) and int(
                name.split()[1], 16
            ):
                ways.append("GOT " + name)
        return ways + [got(lambda: 1 / (1 + libc.prctl(47, 2, 21, 0, 0)))]
        """,
        lives,
    ),
    Attack(
        "undo no_new_privs and the filter",
        """
        status = dict(line.split(":", 1) for line in open("/proc/self/status") if ":" in line)
        facts = [
            "GOT no filter" if status["Seccomp"].strip() != "2" else "filtered",
            "GOT new privileges" if status["NoNewPrivs"].strip() != "1" else "no new privileges",
        ]
        return facts + [
            got(lambda: 1 / (1 + libc.prctl(38, 0, 0, 0, 0))),
            got(lambda: 1 / (1 + libc.prctl(22, 0, 0, 0, 0))),
        ]
        """,
        lives,
    ),
    refused("new namespaces by unshare", *(f'call("unshare", {flag:#x})' for flag in NAMESPACES)),
    refused(
        "new namespaces by clone",
        *(f'call("clone", {flag | 17:#x}, 0, 0, 0, 0)' for flag in NAMESPACES if flag != 0x80),
    ),
    refused(
        "new namespaces by clone3",
        *(f'call("clone3", struct.pack("8Q", {flag:#x}, 0, 0, 0, 17, 0, 0, 0), 64)' for flag in NAMESPACES),
    ),
    Attack(
        "join other namespaces",
        """
        ways = []
        for pid in ("self", "1", told["victim"], told["worker"]):
            for name in ("mnt", "net", "pid", "user", "uts", "ipc"):
                ways.append(got(lambda: call("setns", os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY), 0)))
        return ways
        """,
        lives,
    ),
    refused(
        "keyrings of the kernel",
        'call("add_key", b"user", told["mark"].encode(), b"x", 1, -4)',
        'call("add_key", b"user", told["mark"].encode(), b"x", 1, -5)',
        'call("keyctl", 0, -4, 1)',
        'call("keyctl", 1, told["mark"].encode())',
        'call("request_key", b"user", b"x", 0, -4)',
    ),
    refused(
        "io_uring",
        'call("io_uring_setup", 8, bytes(120))',
        'call("io_uring_enter", 0, 0, 0, 0, 0, 0)',
        'call("io_uring_register", 0, 0, 0, 0)',
    ),
    refused(
        "bpf",
        'call("bpf", 0, struct.pack("4I", 2, 4, 4, 1).ljust(128, bytes(1)), 128)',
        'call("bpf", 5, bytes(128), 128)',
    ),
    refused("perf", 'call("perf_event_open", struct.pack("IIQ", 1, 112, 0).ljust(112, bytes(1)), 0, -1, -1, 0)'),
    refused("userfaultfd", 'call("userfaultfd", 0)', 'call("userfaultfd", 1)'),
    refused("kernels", 'call("kexec_load", 0, 0, 0, 0)', 'call("kexec_file_load", -1, -1, 0, 0, 0)'),
    refused(
        "modules",
        'call("init_module", b"x", 1, b"")',
        'call("finit_module", 0, b"", 0)',
        'call("delete_module", b"none", 0)',
    ),
    refused("reboot", 'call("reboot", 0xFEE1DEAD, 672274793, 0, 0)'),
    Attack(
        "the clock",
        """
        now = struct.pack("qq", int(time.time()) + 1000, 0)
        ways = [
            got(lambda: call("clock_settime", 0, now)),
            got(lambda: call("settimeofday", now, 0)),
            got(time.clock_settime, 0, 10**9),
        ]
        return ways + [
            got(lambda: call("adjtimex", struct.pack("I", 1).ljust(208, bytes(1)))),
            got(lambda: call("clock_adjtime", 0, struct.pack("I", 1).ljust(208, bytes(1)))),
        ]
        """,
        lives,
    ),
    Attack(
        "the host's name",
        """
        return [got(socket.sethostname, told["mark"]), got(lambda: call("setdomainname", b"x", 1))]
        """,
        lives,
    ),
    Attack(
        "another root",
        """
        return [got(os.chroot, "/app"), got(lambda: call("pivot_root", b"/app", b"/app"))]
        """,
        lives,
    ),
    Attack(
        "type into a terminal",
        """
        import fcntl

        main, other = os.openpty()
        ways = [
            got(lambda: fcntl.ioctl(fd, code, b"x"))
            for fd in (main, other, 0, 1)
            for code in (0x5412, 0x541C)
        ]
        return ways + [
            got(os.open, "/dev/tty", os.O_RDWR),
            got(os.open, "/dev/console", os.O_RDWR),
            got(os.open, "/dev/tty0", os.O_RDWR),
        ]
        """,
        lives,
    ),
    refused(
        "quotas, swap and accounts",
        'call("quotactl", 0x80000700, b"/dev/vda", 0, 0)',
        'call("swapon", b"/app/none", 0)',
        'call("swapoff", b"/none")',
        'call("acct", 0)',
    ),
    refused(
        "personality and ports",
        'call("personality", 0x0040000)',
        *(('call("iopl", 3)', 'call("ioperm", 0x70, 2, 1)', 'call("modify_ldt", 1, bytes(16), 16)') if X86 else ()),
    ),
    refused(
        "files by handle, and other ways around paths",
        'call("open_by_handle_at", -100, bytes(128), 0)',
        'call("name_to_handle_at", -100, b"/", struct.pack("Ii", 120, 0).ljust(128, bytes(1)), bytes(8), 0)',
        'call("fanotify_init", 0, 0)',
        'call("lookup_dcookie", 0, bytes(8), 8)',
        'call("quotactl_fd", 0, 0, 0, 0)',
    ),
    refused(
        "the kernel's log and other machine-wide calls",
        'call("syslog", 3, bytes(64), 64)',
        'call("syslog", 5, 0, 0)',
        'call("vhangup")',
        'call("kcmp", 1, 1, 0, 0, 0)',
        'call("io_setup", 64, bytes(8))',
    ),
    refused(
        "memory of other processors' nodes",
        'call("migrate_pages", 1, 8, bytes(8), bytes(8))',
        'call("move_pages", 1, 0, 0, 0, 0, 0)',
        'call("mbind", 0, 0, 0, 0, 0, 0)',
    ),
    Attack(
        "other ways of making system calls",
        """
        code = {"x86_64": bytes.fromhex("b814000000cd80c3")}.get(platform.machine())
        ways = [
            got(lambda: call(0x40000000 + 39)),
            got(lambda: call(467, 0, b"", 0)),
            got(lambda: call(5000)),
        ]
        if code and os.fork() == 0:
            page = mmap.mmap(-1, 4096, prot=7)
            page.write(code)
            done = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
            os._exit(7 if done > 0 else 0)
        if code:
            ways.append(
                "GOT int 0x80" if os.waitstatus_to_exitcode(os.wait()[1]) == 7 else "no 32-bit calls"
            )
        return ways
        """,
        lives,
    ),
)
