"""Exhausting shared resources: memory, processes, files, time."""

from dataclasses import replace

from tests.security.attacks.attack import HASTE, LIMITS, Attack, error, hangs, killed, lives, memory_held, refused

BURN = replace(LIMITS, cpu=0.4)

BOMBS = (
    Attack(
        "a fork bomb",
        """
        count = 0
        while True:
            try:
                if os.fork() == 0:
                    time.sleep(600)
            except OSError as error:
                return [errno.errorcode[error.errno], "GOT" if count > 64 else "few"]
            count += 1
        """,
    ),
    Attack(
        "a fork bomb whose children fork",
        """
        subprocess.Popen(["sh", "-c", "bomb() { bomb | bomb & }; bomb"])
        time.sleep(1)
        return "it forks"
        """,
    ),
    Attack(
        "a thread bomb",
        """
        count = 0
        while True:
            try:
                threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
            except RuntimeError:
                return "GOT" if count > 64 else "can't start new thread"
            count += 1
        """,
    ),
    Attack(
        "a memory bomb in one process",
        """
        kept = []
        while True:
            kept.append(bytearray(2**24))
        """,
        memory_held,
        linger=2.5,
    ),
    Attack(
        "a memory bomb spread over many processes",
        """
        for _ in range(12):
            if os.fork() == 0:
                kept = bytearray(os.urandom(2**20) * 20)
                time.sleep(60)
        time.sleep(1)
        return sum(1 for name in os.listdir("/proc") if name.isdecimal())
        """,
        memory_held,
        linger=2.5,
    ),
    Attack(
        "a memory bomb in shared pages",
        """
        kept = []
        for _ in range(60):
            part = mmap.mmap(-1, 2**23)
            part.write(b"x" * 2**23)
            kept.append(part)
        time.sleep(1)
        """,
        memory_held,
        linger=2.5,
    ),
    Attack(
        "a memory bomb of page tables",
        """
        global space
        resource.setrlimit(resource.RLIMIT_AS, (resource.getrlimit(resource.RLIMIT_AS)[1],) * 2)
        space = mmap.mmap(-1, 120 * 2**30, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ)
        space.madvise(mmap.MADV_NOHUGEPAGE)
        for start in range(0, len(space), 2**21):
            space[start]  # a page of zeros, which counts for nobody, and a page table of 4 KiB
        """,
        memory_held,
        linger=4.0,
    ),
    Attack(
        "a shared memory bomb in /dev/shm",
        """
        return [got(write, f"/dev/shm/{number}", b"x" * 2**23) for number in range(9)][-1:]
        """,
        memory_held,
    ),
    refused(
        "memory that belongs to no process",
        'call("memfd_create", b"x", 0)',
        'call("memfd_secret", 0)',
        'call("shmget", 0, 2**24, 0o1666)',
        'call("msgget", 0, 0o1666)',
        'call("semget", 0, 1, 0o1666)',
        'call("mq_open", b"x", 0o102, 0o600, 0)',
    ),
    Attack(
        "a file bomb",
        """
        ways = [
            got(write, f"/{folder}/{number}", b"x" * 2**22)
            for folder in ("app", "tmp")
            for number in range(9)
        ]
        return ways[-1:]
        """,
        memory_held,
    ),
    Attack(
        "a file of many terabytes",
        """
        with open("/app/big", "wb") as file:
            return [got(file.truncate, 2**44), got(os.posix_fallocate, file.fileno(), 0, 2**40)]
        """,
        lives,
    ),
    Attack(
        "an inode bomb",
        """
        try:
            for folder in range(1000):
                os.mkdir(f"/app/{folder}")
                for number in range(1000):
                    os.close(os.open(f"/app/{folder}/{number}", os.O_CREAT))
        except OSError as error:
            return errno.errorcode[error.errno]
        """,
        killed("files and folders", "memory"),
        linger=2.5,
    ),
    Attack(
        "a folder as deep as can be",
        """
        depth = 0
        try:
            while depth < 4000:
                os.mkdir("d")
                os.chdir("d")
                depth += 1
        except OSError:
            pass
        return depth
        """,
        linger=1.0,
    ),
    Attack(
        "an output bomb",
        """
        print("x" * 10**7)
        subprocess.run("yes | head -c 200000000", shell=True)
        return 1
        """,
        lives,
    ),
    Attack(
        "an output bomb in the background",
        """
        subprocess.Popen(["yes"])
        subprocess.Popen("yes >&2", shell=True)
        return 1
        """,
        lives,
        linger=1.0,
    ),
    Attack(
        "a log bomb",
        """
        files = [f"/proc/{pid}/fd/{fd}" for pid in ("self", "1") for fd in range(64)] + [
            "/dev/stderr",
            "/dev/console",
            "/dev/kmsg",
            "/dev/log",
        ]
        ways = set()
        for name in files:
            try:
                fd = os.open(name, os.O_WRONLY | os.O_NONBLOCK)
                if stat.S_ISREG(os.fstat(fd).st_mode):
                    ways.add("GOT " + name)
                for _ in range(20):
                    os.write(fd, b"x" * 10**6)
            except OSError as error:
                ways.add(errno.errorcode[error.errno])
        libc.syslog(3, b"x" * 10**5)
        return sorted(ways)
        """,
    ),
    Attack(
        "a bomb of open files",
        """
        kept = []
        try:
            while True:
                kept.append(os.open("/dev/null", os.O_RDONLY))
        except OSError as error:
            return [errno.errorcode[error.errno], "GOT" if len(kept) > 600 else "few"]
        """,
    ),
    Attack(
        "a bomb of full sockets and pipes",
        """
        kept = []
        try:
            for _ in range(200):
                kept.append(socket.socketpair())
                kept[-1][0].setblocking(False)
                try:
                    while True:
                        kept[-1][0].send(b"x" * 2**16)
                except BlockingIOError:
                    pass
        except OSError as error:
            return errno.errorcode[error.errno]
        return len(kept)
        """,
        memory_held,
    ),
    Attack(
        "a bomb of terminals",
        """
        kept = []
        try:
            while True:
                kept += os.openpty()
        except OSError as error:
            return errno.errorcode[error.errno]
        """,
    ),
    Attack(
        "locked memory, queued signals and timers",
        """
        ways = [got(lambda: libc.mlockall(3) and call("reboot"))]
        timers = 0
        for _ in range(20000):
            timers += libc.timer_create(1, None, ctypes.byref(ctypes.c_void_p())) == 0
        return ways + ["GOT all timers" if timers > 1000 else "few timers"]
        """,
    ),
    Attack(
        "burn processor time after the callback",
        """
        for _ in range(2):
            subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True)
        return 1
        """,
        killed("processor time"),
        linger=40.0,
        limits=BURN,
    ),
    Attack(
        "burn processor time in children that hide it",
        """
        subprocess.Popen([sys.executable, "-c", HIDDEN], start_new_session=True)
        return 1
        """,
        killed("processor time"),
        linger=40.0,
        limits=BURN,
    ),
    Attack(
        "burn processor time under a name that is no text",
        """
        libc.prctl(15, b"\\xff) R 1\\n", 0, 0, 0)
        for _ in range(2):
            if os.fork() == 0:
                os.setsid()
                libc.prctl(15, b") Z 1 1 1\\xfe", 0, 0, 0)
                while True:
                    pass
        return 1
        """,
        killed("processor time"),
        linger=40.0,
        limits=BURN,
    ),
    Attack(
        "memory that the host has set aside",
        """
        libc.mmap.restype = ctypes.c_long
        return [got(lambda: 1 / (1 + libc.mmap(None, ctypes.c_long(2**21), 3, 0x40022, -1, ctypes.c_long(0))))]
        """,
        lives,
    ),
    hangs("hold the interpreter's lock for hours", "return sum(range(10**14))"),
    Attack(
        "a pattern that never ends",
        """
        import re

        return re.match("(a|a)*b", "a" * 100)
        """,
        error("TimeoutError"),
        limits=HASTE,
    ),
)
