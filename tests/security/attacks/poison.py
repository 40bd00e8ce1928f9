"""Sending the worker messages, past the runner, that it must not believe."""

from tests.security.attacks.attack import HASTE, Attack, bounded, hangs, killed, lives, poison, unasked

POISON = (
    Attack(
        "a frame of four gigabytes",
        """
        say(struct.pack(">I", 2**32 - 1) + b"x" * 1000)
        time.sleep(9)
        """,
        killed("bytes, more than the"),
    ),
    hangs(
        "half a frame",
        """
        say(frame(b'{"result":', 1000))
        time.sleep(60)
        """,
    ),
    hangs(
        "a frame that drips",
        """
        while True:
            try:
                say(b"\\0" + b"\\x10\\0\\0")
                while True:
                    say(b" ")
            except BaseException as error:
                if isinstance(error, OSError):
                    raise
        """,
    ),
    hangs(
        "frames without end",
        """
        while True:
            try:
                say(*[frame({"ask": {"number": 1, "prompts": []}})] * 100)
            except OSError:
                break
            except BaseException:
                pass
        """,
    ),
    poison("no JSON", "say(frame(b'\\xff\\xfe'), frame(b'[]'))"),
    poison("no object", "say(frame(b'[1]'))"),
    Attack(
        "an object that says nothing",
        """
        say(frame({}))
        time.sleep(9)
        """,
        killed("it sent an empty message"),
    ),
    poison(
        "a value as deep as a frame",
        """
        say(frame(b'{"step_id":1000,"result":{"value":' + b"[" * 10**6 + b"]" * 10**6 + b"}}"))
        """,
    ),
    poison(
        "a value of a million parts",
        """
        say(frame(b'{"step_id":1000,"result":{"value":[' + b"[]," * 2 * 10**6 + b"1]}}"))
        """,
    ),
    poison(
        "a value somewhat too deep",
        """
        value = 1
        for _ in range(100):
            value = [value]
        forge({"value": value})
        """,
    ),
    poison("numbers that are none", 'say(frame(b\'{"step_id":1000,"result":{"value":[NaN,Infinity]}}\'))'),
    poison("a number beyond all floats", 'say(frame(b\'{"step_id":1000,"result":{"value":1e999}}\'))'),
    poison(
        "an integer of 4,000 digits",
        """
        say(frame(b'{"step_id":1000,"result":{"value":' + b"9" * 4000 + b"}}"))
        """,
    ),
    poison("an integer of 30 digits", "forge({'value': 10**30})"),
    *(
        poison(f"NUL in {name}", f"forge({result})")
        for name, result in {
            "output": "{'output': 'a\\0b'}",
            "a value": "{'value': [{'k': 'a\\0b'}]}",
            "a key": "{'value': {'a\\0b': 1}}",
            "an error": "{'error': {'type': 'E', 'message': '\\0', 'traceback': '', 'stage': 'callback'}}",
            "a title": "{'registered': ['\\0']}",
            "a working directory": "{'working_directory': '\\0'}",
            "a subagent": "{'subagents': [subagent('\\0')]}",
        }.items()
    ),
    poison("lone surrogates", 'say(frame(b\'{"step_id":1000,"result":{"output":"\\\\ud800"}}\'))'),
    poison(
        "lone surrogates as bytes",
        """
        say(frame(b'{"step_id":1000,"result":{"output":"\\xed\\xa0\\x80"}}'))
        """,
    ),
    poison("no UTF-8", 'say(frame(b\'{"step_id":1000,"result":{"output":"\\xff"}}\'))'),
    poison("a text of six megabytes", "forge({'output': 'x' * 6 * 10**6})"),
    poison("100,000 assertions", "forge({'assertions': [{'question': '?', 'answer': True}] * 10**5})"),
    poison("100,000 subagents", "forge({'subagents': [subagent(str(n)) for n in range(10**5)]})"),
    poison("a time budget without end", "forge({'subagents': [subagent('main', 1e300)]})"),
    poison("two subagents of one name", "forge({'subagents': [subagent('main'), subagent('main')]})"),
    poison("a result of the wrong shape", "forge({'views': 'x', 'value': 1})"),
    Attack(
        "a result for another step",
        """
        forge({"value": 1}, 999)
        time.sleep(9)
        """,
        killed("instead of step"),
    ),
    poison("a result for a step of a negative number", "forge({'value': 1}, -2**70)"),
    poison("wait for a subagent that there is not", "forge({'waits_for': 'nobody'})"),
    Attack(
        "results for its own step, twice and forged",
        """
        forge({"value": "forged", "output": "forged"})
        forge({"value": "again"})
        return "true"
        """,
        bounded,
    ),
    Attack(
        "questions to the model without end",
        """
        while True:
            try:
                say(frame({"ask": {"number": 1, "prompts": ["x"] * 50}}))
            except OSError:
                break
            except BaseException:
                pass
        """,
        unasked,
    ),
    Attack(
        "questions to the model of megabytes",
        """
        for _ in range(12):
            say(frame({"ask": {"number": 1, "prompts": ["x" * 7 * 10**6]}}))
        time.sleep(9)
        """,
        unasked,
    ),
    poison("questions to the model with NUL", "say(frame({'ask': {'number': 1, 'prompts': ['\\0']}}))"),
    poison(
        "messages to nobody, malformed",
        """
        say(frame({"chat": {"number": 1, "turn": -1, "do": "format", "channel": "\\0", "text": "x"}}))
        """,
    ),
    hangs(
        "messages without end",
        """
        while True:
            try:
                say(frame({"chat": {"number": 1, "turn": 1, "do": "read", "channel": "x"}}))
            except OSError:
                break
            except BaseException:
                pass
        """,
    ),
    Attack(
        "wait for people without end",
        """
        for _ in range(100):
            say(frame({"chat": {"number": 1, "turn": 1, "do": "read", "channel": "x", "wait": 60}}))
        time.sleep(60)
        """,
        killed("seconds of waiting for people"),
    ),
    Attack(
        "take the worker's next call and greet it with nonsense",
        """
        def greet():
            listener = sockets()[0][0]
            listener.setblocking(True)
            while True:
                try:
                    one, _ = listener.accept()
                    one.sendall(frame({"hello": {"blocks": told["greeting"]}}))
                    global kept
                    kept = one
                except BaseException:
                    pass

        told["greeting"] = -(10**30)
        for one in live("SocketServer"):
            one._selector.unregister(one._listener)
        threading.Thread(target=greet, daemon=True).start()
        return "it waits"
        """,
        killed("it sent an invalid message", "it sent no greeting"),
    ),
    Attack(
        "say that another worker has taken the step",
        """
        say(frame({"replaced": True}))
        """,
        killed("another worker has taken this step over"),
    ),
    Attack(
        "never read what the worker sends",
        """
        for one in live("SocketServer"):
            type(one)._read = lambda self, connection: time.sleep(600)
        return 1
        """,
        killed("no answer within"),
        limits=HASTE,
        blocks=2**23,
    ),
    Attack(
        "pass open files to the worker",
        """
        for one in sockets()[1]:
            for _ in range(20):
                socket.send_fds(one, [b"\\0"], [os.open("/dev/null", 0) for _ in range(20)])
        time.sleep(9)
        """,
        bounded,
    ),
    Attack(
        "call its own listener many times",
        """
        listener = sockets()[0][0]
        ways = [got(connect, listener.getsockname(), socket.AF_UNIX) for _ in range(100)]
        kept = [socket.socket(socket.AF_UNIX) for _ in range(50)]
        return sorted(set(ways))
        """,
        lives,
    ),
    Attack(
        "close all its files",
        """
        os.closerange(3, 512)
        time.sleep(9)
        """,
        killed("died", "was killed"),
    ),
    Attack(
        "shut the line down",
        """
        for one in sum(sockets(), []):
            one.shutdown(2)
        time.sleep(9)
        """,
        killed("died", "was killed"),
    ),
)
