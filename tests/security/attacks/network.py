"""Connecting to servers of the host, and listening where others connect."""

from tests.security.attacks.attack import Attack, lives, nobody_listens

NETWORK = (
    Attack(
        "connect to database, broker and model pool",
        """
        return [
            got(connect, address, socket.AF_INET6 if ":" in address[0] else socket.AF_INET)
            for address in told["tcp"].values()
        ]
        """,
        lives,
        harmless=True,
    ),
    Attack(
        "connect to the host's unix sockets",
        """
        names = [
            told["socket"],
            "\\0" + told["abstract"],
            "/var/run/docker.sock",
            "/run/dbus/system_bus_socket",
            "/run/containerd/containerd.sock",
            "/tmp/.X11-unix/X0",
            "\\0/tmp/.X11-unix/X0",
        ]
        return [got(connect, name, socket.AF_UNIX) for name in names]
        """,
        lives,
        harmless=True,
    ),
    Attack(
        "ask the cloud's metadata service",
        """
        ways = [
            got(connect, ("169.254.169.254", 80)),
            got(connect, ("fd00:ec2::254", 80), socket.AF_INET6),
        ]
        one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        return ways + [got(one.sendto, b"x", ("169.254.169.254", 80))]
        """,
        lives,
    ),
    Attack(
        "connect to the outside by TCP",
        """
        return [
            got(connect, ("192.0.2.1", 443)),
            got(connect, ("198.51.100.1", 53)),
            got(connect, ("255.255.255.255", 9)),
        ]
        """,
        lives,
    ),
    Attack(
        "send UDP to the host and outside",
        """
        one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        one.sendto(b"x", tuple(told["udp"]))
        return [
            got(one.sendto, b"x", address)
            for address in (("192.0.2.1", 53), ("255.255.255.255", 67), ("224.0.0.1", 9))
        ]
        """,
        lives,
    ),
    Attack(
        "connect by IPv6",
        """
        return [
            got(connect, (name, 80), socket.AF_INET6)
            for name in ("2001:db8::1", "fe80::1%lo", "::ffff:192.0.2.1")
        ]
        """,
        lives,
    ),
    Attack(
        "look names up",
        """
        return [got(socket.getaddrinfo, name, 80) for name in ("example.com", "metadata.google.internal")]
        """,
        lives,
    ),
    Attack(
        "give the box an address and a route",
        """
        import fcntl

        one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        wish = struct.pack("16sH2s4s8s", b"lo", socket.AF_INET, b"", socket.inet_aton("192.0.2.1"), b"")
        ways = [
            got(lambda: fcntl.ioctl(one, code, wish.ljust(64, b"\\0")))
            for code in (0x8916, 0x8914, 0x890B, 0x89A0)
        ]
        return ways + [
            got(one.setsockopt, socket.SOL_SOCKET, 25, b"eth0\\0"),
            got(one.setsockopt, 0, 19, 1),
        ]
        """,
    ),
    Attack(
        "netlink",
        """
        return [got(socket.socket, 16, 3, number) for number in (4, 6, 9, 12, 15, 16, 18, 21)]
        """,
        lives,
    ),
    Attack(
        "vsock, which knows no namespaces",
        """
        return [got(socket.socket, 40, kind) for kind in (1, 2, 5)]
        """,
        lives,
    ),
    Attack(
        "raw and packet sockets",
        """
        return [
            got(socket.socket, *one)
            for one in ((2, 3, 1), (2, 3, 255), (10, 3, 58), (17, 3, 768), (17, 2, 8))
        ]
        """,
        lives,
    ),
    Attack(
        "sockets of other families",
        """
        return [
            got(socket.socket, family, 2)
            for family in (3, 4, 9, 15, 21, 24, 29, 30, 31, 33, 35, 38, 39, 42, 43, 44)
        ]
        """,
        lives,
    ),
    Attack(
        "protocols that the kernel loads when asked",
        """
        return [
            got(socket.socket, 2, kind, number)
            for kind, number in ((1, 132), (5, 132), (6, 33), (2, 136), (1, 262))
        ]
        """,
        lives,
    ),
    Attack(
        "listen where others connect",
        """
        global kept
        kept = [socket.create_server(("0.0.0.0", told["port"])), socket.socket(socket.AF_UNIX)]
        kept[1].bind("\\0" + told["abstract"] + "-in")
        kept[1].listen()
        return "it listens inside"
        """,
        nobody_listens,
        harmless=True,
    ),
    Attack(
        "listen under the name of a host's socket",
        """
        global kept
        kept = []
        for name in ("\\0" + told["abstract"], "/tmp/listener"):
            kept.append(socket.socket(socket.AF_UNIX))
            kept[-1].bind(name)
            kept[-1].listen()
        return "it listens inside"
        """,
        lives,
    ),
)
