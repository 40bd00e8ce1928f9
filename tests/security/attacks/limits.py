"""Using what the kernel counts for no process: buffers of sockets and pipes, locks, notifications of shared files."""

import contextlib
import time
from typing import TYPE_CHECKING

from tests.security.attacks.attack import Attack, Escaped, killed, lives, memory_held, refused
from weavegen.sandbox import groups
from weavegen.sandbox.watch import PAGE_SIZE

if TYPE_CHECKING:
    from tests.security.attacks.selfcheck import Scene

MOST_QUEUED = 48 * 2**20
"""Bytes in the buffers of all TCP and UDP sockets of the host. Control groups limit those of the box to 20 MiB."""

WATCHED_SECONDS = 3.0
"""Time in which the watch, which looks once a second, ends a box that no control group limits."""


def queued_bytes() -> int:
    """Bytes in the buffers of all TCP and UDP sockets of this host, of other programs too."""
    with open("/proc/net/sockstat") as file:
        rows = {row.split(":")[0]: row.split() for row in file}
    return sum(int(rows[name][rows[name].index("mem") + 1]) * PAGE_SIZE for name in ("TCP", "UDP"))


def buffers_held(scene: "Scene") -> None:
    """The box was ended, or its sockets hold little."""
    handle, limits = scene.environment.handle, scene.environment.limits
    limited = groups.limits_memory(handle.groups, limits)
    most = MOST_QUEUED if limited else limits.memory + MOST_QUEUED
    deadline = time.monotonic() + (0 if limited else WATCHED_SECONDS)
    while (queued := queued_bytes()) > most and handle.alive() and time.monotonic() < deadline:
        time.sleep(0.1)
    if not handle.alive():
        return
    if queued > most:
        raise Escaped(f"the host's sockets hold {queued / 2**20:,.0f} MiB")
    with contextlib.suppress(OSError), open(f"/proc/{handle.pid}/net/netlink") as file:
        netlink = sum(int(row.split()[4]) for row in file if row.split()[4].isdecimal())
        if netlink > most:
            raise Escaped(f"the box's netlink sockets hold {netlink / 2**20:,.0f} MiB")


too_many_sockets = killed("open sockets", "memory")


def tcp(name: str, family: str, host: str, reads: bool) -> Attack:
    return Attack(
        name,
        f"""
        global kept
        kept, held, end = [], 0, time.monotonic() + 8
        listener = socket.socket({family})
        listener.bind(("{host}", 0))
        listener.listen(100)
        while len(kept) < 120 and held < 400 * 2**20 and time.monotonic() < end:
            one = socket.create_connection(listener.getsockname()[:2])
            other = listener.accept()[0]
            kept += [one, other]
            if not {reads}:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**22)
                other.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**22)
            one.setblocking(False)
            other.setblocking(False)
            for _ in range({reads} and 60):  # the buffer grows for those who read
                try:
                    for _ in range(40):
                        held += one.send(b"x" * 2**16)
                except BlockingIOError:
                    pass
                try:
                    while True:
                        held -= len(other.recv(2**20))
                except BlockingIOError:
                    pass
            try:
                for _ in range(400):
                    held += one.send(b"x" * 2**16)
                    time.sleep(0.0001)
            except BlockingIOError:
                pass
        kept.append(listener)
        return held >> 20
        """,
        buffers_held,
    )


LIMIT_ATTACKS = (
    tcp("a bomb of TCP buffers", "socket.AF_INET", "127.0.0.1", reads=False),
    tcp("a bomb of TCP buffers that have grown by reading", "socket.AF_INET6", "::1", reads=True),
    Attack(
        "a bomb of UDP buffers",
        """
        global kept
        kept = []
        for _ in range(200):
            one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**24)
            one.bind(("127.0.0.1", 0))
            kept.append(one)
            for _ in range(40):
                kept[0].sendto(b"x" * 60000, one.getsockname())
        return len(kept)
        """,
        buffers_held,
    ),
    Attack(
        "a bomb of UDP buffers with the smallest packets",
        """
        global kept
        kept = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(100)]
        for one in kept:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**24)
            one.bind(("127.0.0.1", 0))
            for _ in range(4000):
                kept[0].sendto(b"", one.getsockname())
        """,
        buffers_held,
    ),
    Attack(
        "packets that are never finished",
        """
        global kept
        kept = []
        for _ in range(4):
            if os.fork() == 0:
                for _ in range(200):
                    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                    one.connect(("127.0.0.1", 9))
                    kept.append(one)
                    one.send(b"x" * 60000, 0x8000)  # MSG_MORE
                time.sleep(60)
        time.sleep(2)
        """,
        too_many_sockets,
        linger=5.0,
    ),
    Attack(
        "answers of netlink that nobody reads",
        """
        global kept
        kept = []
        message = struct.pack("IHHII", 4016, 0x7F, 5, 1, 0) + b"x" * 4000
        for _ in range(3):
            if os.fork() == 0:
                for _ in range(200):
                    one = socket.socket(16, 3, 0)
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**24)
                    kept.append(one)
                    for _ in range(60):
                        one.send(message)
                time.sleep(60)
        time.sleep(2)
        """,
        too_many_sockets,
        linger=5.0,
    ),
    Attack(
        "answers of netlink that nobody reads, in large buffers",
        """
        global kept
        kept = []
        message = struct.pack("IHHII", 4016, 0x7F, 5, 1, 0) + b"x" * 4000
        for _ in range(40):
            one = socket.socket(16, 3, 0)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**23)
            one.setblocking(False)
            kept.append(one)
            try:
                for _ in range(700):
                    one.send(message)
            except OSError:
                pass
        """,
        buffers_held,
    ),
    Attack(
        "a bomb of sockets in many processes",
        """
        for _ in range(4):
            if os.fork() == 0:
                kept = [socket.socket(socket.AF_UNIX) for _ in range(200)]
                time.sleep(60)
        time.sleep(1)
        """,
        too_many_sockets,
        linger=5.0,
    ),
    Attack(
        "a bomb of connections that nobody accepts",
        """
        global kept
        kept = [socket.create_server(("127.0.0.1", 0), backlog=4096)]
        for _ in range(400):
            one = socket.create_connection(kept[0].getsockname())
            one.send(b"x")
            one.close()
        """,
        too_many_sockets,
        linger=5.0,
    ),
    Attack(
        "sockets that are on their way in messages",
        """
        global kept
        kept = []
        for _ in range(2):
            if os.fork() == 0:
                ways = [socket.socketpair() for _ in range(20)]
                try:
                    for way in ways:
                        for _ in range(10):
                            load = [socket.socket(socket.AF_UNIX) for _ in range(20)]
                            socket.send_fds(way[0], [b"x"], [one.fileno() for one in load])
                            for one in load:
                                one.close()
                except OSError:
                    pass
                kept += [ways, [socket.socket(socket.AF_UNIX) for _ in range(120)]]
                time.sleep(60)
        time.sleep(1)
        """,
        too_many_sockets,
        linger=5.0,
    ),
    Attack(
        "files that are on their way in messages",
        """
        count = 0
        one, other = socket.socketpair()
        file = os.open("/dev/null", os.O_RDONLY)
        try:
            while count < 4000:
                socket.send_fds(one, [b"x"], [file] * 50)
                count += 50
        except OSError as error:
            return [errno.errorcode[error.errno], "GOT" if count > 1000 else "few"]
        return "GOT " + str(count)
        """,
        lives,
    ),
    Attack(
        "a bomb of unix sockets with large buffers",
        """
        global kept
        kept = []
        for _ in range(100):
            one, other = socket.socketpair()
            one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**24)
            one.setblocking(False)
            kept += [one, other]
            try:
                for _ in range(64):
                    one.send(b"x" * 2**16)
            except BlockingIOError:
                pass
        """,
        memory_held,
    ),
    Attack(
        "larger buffers",
        """
        ways = []
        for family, kind in ((2, 1), (2, 2), (10, 1), (1, 1), (1, 2), (16, 3)):
            one = socket.socket(family, kind)
            for name in (socket.SO_SNDBUF, socket.SO_RCVBUF, 32, 33):  # 32, 33: SO_SNDBUFFORCE, SO_RCVBUFFORCE
                try:
                    one.setsockopt(socket.SOL_SOCKET, name, 2**22)
                except OSError:
                    pass
            sizes = [one.getsockopt(socket.SOL_SOCKET, name) for name in (socket.SO_SNDBUF, socket.SO_RCVBUF)]
            ways.append(f"GOT {sizes}" if max(sizes) > 2**20 else "as before")
        return ways
        """,
        lives,
    ),
    Attack(
        "larger buffers by the kernel's settings",
        """
        names = ["core/rmem_max", "core/wmem_max", "core/rmem_default", "core/optmem_max", "ipv4/tcp_rmem"]
        names += ["ipv4/tcp_wmem", "ipv4/tcp_mem", "ipv4/udp_mem", "unix/max_dgram_qlen", "ipv4/ping_group_range"]
        return [got(write, "/proc/sys/net/" + name, b"1000000 1000000 1000000") for name in names]
        """,
        lives,
    ),
    Attack(
        "more open files",
        """
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        libc.prlimit.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
        new = struct.pack("QQ", 10**6, 10**6)
        return [
            got(resource.setrlimit, resource.RLIMIT_NOFILE, (hard + 1, hard + 1)),
            "GOT" if libc.prlimit(0, resource.RLIMIT_NOFILE, new, None) == 0 else "no",
        ]
        """,
        lives,
    ),
    Attack(
        "a bomb of large pipes",
        """
        import fcntl

        global kept
        kept, held = [], 0
        try:
            while held < 400 * 2**20:
                end, start = os.pipe()
                kept += [end, start]
                os.set_blocking(start, False)
                try:
                    fcntl.fcntl(start, 1031, 2**20)  # F_SETPIPE_SZ
                except OSError:
                    pass
                try:
                    while True:
                        held += os.write(start, b"x" * 2**16)
                except BlockingIOError:
                    pass
        except OSError as error:
            return [errno.errorcode[error.errno], held >> 20, "GOT" if held > 200 * 2**20 else "few"]
        return "GOT"
        """,
    ),
    Attack(
        "a bomb of pipes in many processes",
        """
        for _ in range(20):
            if os.fork() == 0:
                kept = []
                try:
                    while True:
                        kept.append(os.pipe())
                        os.set_blocking(kept[-1][1], False)
                        os.write(kept[-1][1], b"x" * 2**16)
                except OSError:
                    time.sleep(60)
        time.sleep(2)
        """,
        memory_held,
        linger=2.5,
    ),
    refused(
        "reports of what others do with shared files",
        'call("inotify_init1", 0)',
        'call("inotify_add_watch", 3, b"/usr/bin", 0xFFF)',
        'call("fanotify_init", 0, 0)',
    ),
    Attack(
        "reports of shared folders, and leases on shared files",
        """
        import fcntl

        ways = []
        for name in ("/usr/bin", "/usr/lib", "/opt/weave/weavegen/box", "/app/tools"):
            folder = os.open(name, os.O_RDONLY)
            ways.append(got(fcntl.fcntl, folder, 1026, 0x8000003F))  # F_NOTIFY
        for name in (sys.executable, "/usr/bin/env", "/opt/weave/weavegen/box/api.py"):
            file = os.open(name, os.O_RDONLY)
            ways += [got(fcntl.fcntl, file, 1024, kind) for kind in (0, 1)]  # F_SETLEASE
        return ways
        """,
        lives,
    ),
    Attack(
        "a lease on a file of its own",
        """
        import fcntl

        write("/app/mine")
        return got(fcntl.fcntl, os.open("/app/mine", os.O_RDONLY), 1024, 0)
        """,
        lives,
    ),
)
