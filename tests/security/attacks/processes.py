"""Reaching, killing and outliving processes."""

from tests.security.attacks.attack import Attack, killed, lives, refused

PROCESSES = (
    Attack(
        "signal the host's processes",
        """
        ways = [got(os.kill, told[one], number) for one in ("victim", "worker") for number in (0, 9)]
        mine = {
            int(one) for one in os.listdir("/proc") + os.listdir("/proc/self/task") if one.isdecimal()
        }
        ways += {got(os.kill, pid, 9) for pid in range(2, 40000) if pid not in mine}
        return ways
        """,
        lives,
    ),
    Attack("kill every process that there is", "return [got(os.kill, -1, 9)]", lives),
    Attack(
        "kill every process of its group and session",
        """
        os.killpg(0, 9)
        time.sleep(9)
        """,
        killed("died", "was killed"),
    ),
    Attack(
        "kill the box's process 1",
        """
        for number in (9, 15, 19):
            os.kill(1, number)
        return "it takes no signals"
        """,
        lives,
    ),
    Attack("kill the runner's parent's child", "os.kill(os.getpid(), 9)", killed("died")),
    refused(
        "trace a process",
        'call("ptrace", 16, told["victim"], 0, 0)',
        'call("ptrace", 0x4206, told["victim"], 0, 0)',
        'call("ptrace", 16, 1, 0, 0)',
        'call("ptrace", 0, 0, 0, 0)',
    ),
    Attack(
        "read and write other processes' memory",
        """
        here = ctypes.create_string_buffer(64)
        vector = struct.pack("QQ", ctypes.addressof(here), 64)
        ways = [
            got(lambda: call(name, pid, vector, 1, vector, 1, 0))
            for name in ("process_vm_readv", "process_vm_writev")
            for pid in (told["victim"], told["worker"], 1)
        ]
        return ways + [got(write, f"/proc/{pid}/mem") for pid in (told["victim"], told["worker"])]
        """,
        lives,
    ),
    Attack(
        "write to the memory of the box's process 1, and of its parent",
        """
        def rewrite(pid):
            with open(f"/proc/{pid}/maps") as file:
                place = next(int(line.split("-")[0], 16) for line in file if " rw-p " in line)
            with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
                memory.seek(place)
                held = memory.read(8)
                memory.seek(place)
                return memory.write(held)
        return [got(rewrite, pid) for pid in {1, os.getppid()}]
        """,
        lives,
    ),
    Attack(
        "reach the worker by its socket: pid, pidfd and files",
        """
        ways = []
        for one in sockets()[1]:
            pid = struct.unpack("3i", one.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
            ways.append(got(os.kill, pid, 9) if pid > 0 else "its pid is not told")
            try:
                fd = struct.unpack("i", one.getsockopt(socket.SOL_SOCKET, 77, 4))[0]
            except OSError as error:
                ways.append(errno.errorcode[error.errno])
            else:
                ways += [
                    got(signal.pidfd_send_signal, fd, 9),
                    got(lambda: call("pidfd_getfd", fd, 0, 0)),
                    got(lambda: call("setns", fd, 0)),
                ]
        return ways
        """,
        lives,
    ),
    Attack(
        "take precedence",
        """
        ways = [
            got(os.nice, -1),
            got(os.setpriority, os.PRIO_USER, 0, -5),
            got(os.sched_setscheduler, 0, os.SCHED_FIFO, os.sched_param(1)),
        ]
        ways += [got(write, "/proc/self/oom_score_adj", b"-1000")]
        return ways + [
            got(resource.setrlimit, which, (-1, -1))
            for which in (resource.RLIMIT_NPROC, resource.RLIMIT_AS, resource.RLIMIT_NOFILE)
        ]
        """,
        lives,
    ),
    Attack(
        "survive the trace: daemons that ignore signals",
        """
        for _ in range(5):
            if os.fork() == 0:
                os.setsid()
                if os.fork() == 0:
                    for number in range(1, 65):
                        try:
                            signal.signal(number, signal.SIG_IGN)
                        except (OSError, ValueError):
                            pass
                    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
                    os.execv(
                        "/bin/sh", [told["mark"], "-c", "trap '' TERM HUP INT; sleep 600; sleep 600"]
                    )
                os._exit(0)
        return "left behind"
        """,
        lives,
    ),
    Attack(
        "survive the trace: fork without end",
        """
        if os.fork() == 0:
            os.setsid()
            while True:
                if os.fork():
                    os._exit(0)
                time.sleep(0.001)
        return "left behind"
        """,
    ),
)
