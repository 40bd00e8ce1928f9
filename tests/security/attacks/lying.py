"""Tampering with the runner in the box. It may then give false results for its own step, within limits."""

from tests.security.attacks.attack import Attack, bounded, hangs, lives

LYING = (
    Attack(
        "values that are none: cyclic, deep, NaN, huge",
        """
        loop = []
        loop.append(loop)
        deep = []
        for _ in range(10**5):
            deep = [deep]
        return [loop, float("nan"), float("inf"), 10**5000, "\\0", "\\ud800", {1: object()}, deep]
        """,
        lives,
    ),
    Attack(
        "values whose methods lie",
        """
        class Lie(str):
            def __len__(self):
                return 1

            def encode(self, *_):
                return b"\\0"

            __str__ = replace = __getitem__ = encode

        class Number(int):
            def __ge__(self, _):
                return True

            __le__ = __lt__ = __gt__ = __ge__

        return [Lie("x" * 10**6), Number(10**40), Lie("\\0")]
        """,
        lives,
    ),
    Attack(
        "a class without end in its name and errors",
        """
        Bad = type("x" * 10**6, (Exception,), {"__str__": lambda self: "y" * 10**7})
        raise Bad
        """,
        bounded,
    ),
    Attack(
        "patch the JSON that the runner writes",
        """
        import weavegen.box.wire as wire

        wire.dumps = lambda *_, **__: '{"step_id":1000,"result":{"output":"\\\\u0000"}}'
        return 1
        """,
        bounded,
    ),
    Attack(
        "patch the JSON that is everybody's",
        """
        json.dumps = json.loads = None
        json.encoder.JSONEncoder.default = None
        return 1
        """,
        lives,
    ),
    Attack(
        "patch the socket server",
        """
        import weavegen.box.server as server

        finish = server.SocketServer.finish
        server.SocketServer.finish = lambda self, step, result: finish(
            self, step, {**result, "value": "x" * 10**6, "output": "\\0"}
        )
        return 1
        """,
        bounded,
    ),
    Attack(
        "patch the runner to say what it likes",
        """
        for one in live("Runner"):
            type(one).report = lambda self, result: {
                "error": {"type": "x" * 10**5, "message": "", "traceback": "", "stage": "callback"}
            }
        return 1
        """,
        bounded,
    ),
    hangs(
        "patch the runner to never end",
        """
        for one in live("Runner"):
            type(one).execute = lambda self, op: time.sleep(10**6)
        return 1
        """,
    ),
    hangs(
        "patch the clock",
        """
        import weavegen.box.guard as guard

        guard.Clock.limit = guard.Clock.stop = guard.Clock.ring = None
        signal.setitimer(signal.ITIMER_REAL, 0)
        while True:
            pass
        """,
    ),
    Attack(
        "patch the cleaning of texts",
        """
        import weavegen.box.plain as plain, weavegen.box.runner as runner

        plain.clean = runner.clean = runner.plain = lambda value, *_: value
        return "a\\0b" * 10**5
        """,
        bounded,
    ),
    Attack(
        "forge remembered results",
        """
        for one in live("SocketServer"):
            for step in (1001, 7, 2**63):
                one._results[step] = frame(
                    {"step_id": step, "result": {"value": "x", "output": "forged\\0"}}
                )
        return 1
        """,
        bounded,
    ),
    Attack(
        "break the builtins",
        """
        import builtins

        for name in list(vars(builtins)):
            vars(builtins)[name] = None
        """,
        bounded,
    ),
    Attack(
        "break every object that there is",
        """
        for one in gc.get_objects():
            try:
                if isinstance(one, dict) and one is not globals():
                    one.clear()
            except BaseException:
                pass
        """,
        bounded,
    ),
    Attack(
        "break the frames beneath",
        """
        frame = sys._getframe()
        while frame:
            for name in list(frame.f_globals):
                frame.f_globals[name] = None
            frame = frame.f_back
        """,
        bounded,
    ),
    Attack(
        "patch imports for the next block",
        """
        class Finder:
            def find_spec(self, *_):
                raise SystemExit("no more imports")

        sys.meta_path.insert(0, Finder())
        sys.modules.clear()
        return 1
        """,
        bounded,
    ),
)
