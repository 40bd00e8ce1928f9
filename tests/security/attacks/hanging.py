"""Never answering, or exiting when an answer is due."""

from tests.security.attacks.attack import HASTE, Attack, error, hangs, killed

HANGING = (
    Attack(
        "ignore signals",
        """
        for number in range(1, 65):
            try:
                signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError):
                pass
        signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
        while True:
            pass
        """,
        killed("no answer within"),
        limits=HASTE,
    ),
    Attack(
        "catch everything, for ever",
        """
        def hold():
            while True:
                try:
                    time.sleep(0.01)
                except BaseException:
                    pass

        while True:
            try:
                hold()
            except BaseException:
                continue
        """,
        killed("no answer within"),
        limits=HASTE,
    ),
    Attack("never return", "threading.Event().wait()", error("TimeoutError"), limits=HASTE),
    hangs("never return, from a stopped process", "os.kill(os.getpid(), signal.SIGSTOP)"),
    hangs(
        "trace every line to hang on each",
        """
        def hang(*_):
            while True:
                try:
                    time.sleep(1)
                except BaseException:
                    pass

        sys.settrace(hang)
        len([])
        hang()
        """,
    ),
    Attack("sys.exit", "sys.exit(0)", error("SystemExit")),
    Attack("os._exit", "os._exit(0)", killed("died")),
    Attack("os.abort", "os.abort()", killed("died")),
    Attack("a segmentation fault", "ctypes.string_at(0)", killed("died")),
    Attack(
        "end every thread but its own",
        """
        for one in threading.enumerate():
            libc.syscall({"x86_64": 234}.get(platform.machine(), 131), os.getpid(), one.native_id, 9)
        """,
        killed("died"),
    ),
    hangs(
        "hold the socket server's locks",
        """
        for one in live("SocketServer"):
            one._request_lock.acquire()
        import weave

        return weave.ask(["x"])
        """,
    ),
)
