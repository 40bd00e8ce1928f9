"""What attacks have at hand in the box. The text is a part of each hostile block; nothing imports it."""

PRELUDE = r'''
import ctypes, errno, gc, json, mmap, os, platform, resource, signal, socket
import stat, struct, subprocess, sys, threading, time
told = {}
libc = ctypes.CDLL(None, use_errno=True)

def call(name, *arguments):
    """A system call, by name or number."""
    number = told["numbers"][name] if isinstance(name, str) else name
    ctypes.set_errno(0)
    libc.syscall.restype = ctypes.c_long
    words = [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
    done = libc.syscall(ctypes.c_long(number), *words)
    if done == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return done

def got(function, *arguments):
    """What an attempt that must fail comes to: the word GOT, where it does not fail."""
    try:
        return f"GOT {function.__name__} {function(*arguments)!r}"[:300]
    except OSError as error:
        return errno.errorcode.get(error.errno, type(error).__name__)
    except (NameError, TypeError, AttributeError, LookupError, struct.error, ctypes.ArgumentError):
        raise  # a mistake of the attack's own: nothing was tried
    except BaseException as error:
        return type(error).__name__

def text(path):
    with open(path, "rb") as file:
        return file.read(4096).decode("latin-1")

def write(path, data=b"x"):
    with open(path, "wb", buffering=0) as file:
        return file.write(data)

def connect(address, family=socket.AF_INET):
    with socket.socket(family) as one:
        one.settimeout(1)
        one.connect(tuple(address) if isinstance(address, list) else address)
        return one.getpeername()

def sockets():
    """Inherited sockets: (those that listen, those that are connected to a worker)."""
    listening, connected = [], []
    for fd in map(int, os.listdir("/proc/self/fd")):
        try:
            if not stat.S_ISSOCK(os.fstat(fd).st_mode):
                continue
            one = socket.socket(fileno=os.dup(fd))
            if one.family != socket.AF_UNIX or not one.getsockname():
                continue
            (listening if one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) else connected).append(one)
        except OSError:
            pass
    return listening, connected

def frame(message, length=None):
    data = message if isinstance(message, bytes) else json.dumps(message).encode()
    return struct.pack(">I", len(data) if length is None else length) + data

def say(*frames):
    """Speak to the worker past the runner."""
    for one in sockets()[1]:
        one.setblocking(True)
        for data in frames:
            one.sendall(data)

def forge(result, step_id=1000):
    say(frame({"step_id": step_id, "result": result}))

def subagent(name, time_budget=1):
    return {"name": name, "parent": None, "description": "", "schema": {}, "time_budget": time_budget}

def live(kind):
    """Objects of the runner, found by the name of their class."""
    return [one for one in gc.get_objects() if type(one).__name__ == kind]

HIDDEN = """
import os, signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
while True:
    for _ in range(4):
        if os.fork() == 0:
            end = time.monotonic() + 0.3
            while time.monotonic() < end: pass
            os._exit(0)
    time.sleep(0.3)
"""
'''
