"""Chromium without a window, driven over the DevTools protocol on two pipes.

The pipes need no port and no library, and nobody else in the box can connect to them. Chromium's own sandbox is off: it
needs namespaces, which the box refuses to everything in it, and it would protect nothing that the box does not.
"""

import contextlib
import json
import os
import random
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from typing import Any

from .chromium_page import ONE_WINDOW, SCRIPT, live_lines
from .terminal import program

PROGRAMS = (
    "/usr/lib/chromium/chromium",
    "/usr/lib64/chromium-browser/chromium-browser",
    "chromium",
    "chromium-browser",
)
"""The program itself first: Debian's command is a script that reads /etc, which the box lacks."""
PACKAGE = "chromium"
ADDRESS_SPACE = 110 * 2**30
"""Bytes that a process of Chromium reserves, 105 GiB, and some more."""
OFF = (
    "BackForwardCache,DialMediaRouteProvider,IsolateOrigins,MediaRouter,OptimizationHints,SpareRendererForSitePerProcess,"
    "Translate,site-per-process"
)
FLAGS = (
    "--headless", "--no-sandbox", "--no-zygote", "--disable-gpu", "--in-process-gpu", "--disable-dev-shm-usage",
    "--renderer-process-limit=1", "--enable-features=NetworkServiceInProcess2", f"--disable-features={OFF}",
    "--disable-extensions", "--disable-component-update", "--disable-background-networking", "--disable-default-apps",
    "--disable-sync", "--disable-breakpad", "--no-first-run", "--no-default-browser-check", "--no-proxy-server",
    "--mute-audio", "--password-store=basic", "--use-mock-keychain", "--disk-cache-size=8388608",
    "--window-size=1280,1024", "--remote-debugging-pipe",
)  # fmt: skip
"""One process for the browser and one for all pages, about 65 threads: the box has 128 processes and threads."""
LAUNCH = """\
import fcntl, os, resource, sys
space, reads, writes, *command = sys.argv[1:]
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD_CLOEXEC, 10) for end in (reads, writes)]
resource.setrlimit(resource.RLIMIT_AS, (int(space), resource.getrlimit(resource.RLIMIT_AS)[1]))
for end, number in zip(ends, (3, 4)):
    os.dup2(end, number)
os.execv(command[0], command)
"""
"""Runs before Chromium in its process: raises the limit of address space, and opens the pipes as 3 and 4."""
START_SECONDS = 15.0
CALL_SECONDS = 5.0
"""Time for an answer of Chromium. Only a page whose JavaScript does not end takes longer."""
LOAD_SECONDS = 10.0
"""Time for a page to load; then it is shown as far as it came."""
FIRST_CHANGE_SECONDS = 0.1
"""Time for a click to begin loading a page."""
QUIET_SECONDS = 0.15
"""A page is complete if it has had no request under way for this time."""
MAX_QUIET_SECONDS = 2.0
"""Time to wait for that: some pages always have a request under way."""
SHOWN_NOTES = 5
HEAP_MIB = 384
"""Memory for the objects of a page's JavaScript. A box has 1 GiB."""
CRASHED = "the page has crashed: open another one"


@dataclass(frozen=True)
class Control:
    """Something on a page that can be operated."""

    number: int
    kind: str
    """link, button, field, text area, box (of a checkbox), choice (of radio buttons), list, file or clickable."""
    text: str
    """The text of a link or button, the label of a field."""
    value: Any
    """The address of a link, the text of a field, whether a box is checked, the chosen ones of a list."""


class Ended(RuntimeError):
    """Chromium has ended."""


class Refused(Exception):
    """Chromium refuses a call, most often because another page has come."""


class Chromium:
    """A browser with one page."""

    def __init__(self) -> None:
        """Start it. Raises FileNotFoundError if it is not installed, RuntimeError if it can't run here."""
        path, hard = program(PROGRAMS, PACKAGE), resource.getrlimit(resource.RLIMIT_AS)[1]
        if 0 <= hard < ADDRESS_SPACE:
            raise RuntimeError(
                f"chromium can't run here: it reserves {ADDRESS_SPACE / 2**30:,.0f} GiB of address space, the limit is "
                f"{hard / 2**30:,.0f} (Limits.most_address_space, or ulimit -Hv)"
            )
        self.url, self.status, self.notes = "", "", list[str]()
        self.lines: list[str] = []
        self.controls: list[Control] = []
        self.number = 0
        self.buffer = b""
        self.session = self.frame = ""
        self.world: int | None = None
        self.loading = self.crashed = False
        self.last_change = 0.0
        self.requests: set[str] = set()
        self.folder = tempfile.mkdtemp(prefix="weave-chromium-")
        try:
            self.start(path, hard)
        except BaseException:
            self.close()
            raise

    def start(self, path: str, hard: int) -> None:
        in_chromium, self.to_chromium = os.pipe()
        self.from_chromium, out_chromium = os.pipe()
        # JavaScript's random numbers are seeded with the trace, as Python's. A page that takes too much memory crashes
        # alone, before the box has none left.
        script = f"--js-flags=--random-seed={random.randrange(1, 2**31)} --max-old-space-size={HEAP_MIB}"
        space = str(hard if hard >= 0 else resource.RLIM_INFINITY)
        launch = (sys.executable, "-sSEc", LAUNCH, space, str(in_chromium), str(out_chromium))
        try:
            self.process = subprocess.Popen(
                [*launch, path, *FLAGS, script, f"--user-data-dir={self.folder}", "about:blank"],
                pass_fds=(in_chromium, out_chromium),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "HOME": self.folder, "TMPDIR": self.folder},
                start_new_session=True,
            )
        finally:
            os.close(in_chromium)
            os.close(out_chromium)
        try:
            pages = self.call("Target.getTargets", START_SECONDS)["targetInfos"]
            target = next(page["targetId"] for page in pages if page["type"] == "page")
            self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            self.frame = self.call("Page.getFrameTree")["frameTree"]["frame"]["id"]
            for domain in ("Page", "Network", "Inspector"):
                self.call(f"{domain}.enable")
            self.call("Page.addScriptToEvaluateOnNewDocument", source=ONE_WINDOW)
            self.call("Browser.setDownloadBehavior", behavior="deny")
        except (Ended, Refused, TimeoutError, StopIteration) as error:
            raise RuntimeError(
                f"chromium ended as soon as it was started ({error}). It needs 70 processes and threads and 150 MiB of "
                "memory besides what the box has in use: end other programs, or close other tools"
            ) from None

    # ---- pages

    def open(self, url: str) -> None:
        """Load a page. Raises ConnectionError if the server does not answer."""
        self.notes, self.loading, self.crashed = [], True, False
        self.url, self.status, self.lines, self.controls = url, "", [], []
        answer = self.call("Page.navigate", LOAD_SECONDS, url=url)
        if error := answer.get("errorText"):
            self.loading = False
            if error != "net::ERR_ABORTED":  # a download, or an answer without content
                raise ConnectionError(f"{url} does not answer: {error}")
            self.notes.append(f"{url} is no page: it can't be shown")
        if "loaderId" not in answer:  # another place of the same page
            self.loading = False
        self.settle()

    def back(self) -> None:
        """Return to the page before. Raises ValueError if there is none."""
        self.notes, self.crashed = [], False
        history = self.call("Page.getNavigationHistory")
        at, entries = history["currentIndex"], history["entries"]
        if at < 1 or entries[at - 1]["url"] == "about:blank":
            raise ValueError("there is no page to go back to")
        self.call("Page.navigateToHistoryEntry", entryId=entries[at - 1]["id"])
        self.settle()

    def act(self, action: str, *arguments: Any) -> None:
        """Call a function of the script, such as `click`, and wait for what comes of it."""
        self.notes = []
        try:
            self.evaluate(f"weave.{action}(...{json.dumps(arguments)})", attempts=1)
        except Refused as error:
            self.world = None
            if "Cannot find context" in str(error):
                raise ValueError("the page has changed: look at it again") from None
            # Otherwise the action has brought another page, before its answer was there.
        self.settle()

    def press(self, key: str) -> None:
        """Press a key where the focus is."""
        named = {
            "Enter": 13, "Tab": 9, "Escape": 27, "Backspace": 8, "Delete": 46, "Home": 36, "End": 35, "PageUp": 33,
            "PageDown": 34, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40,
        }  # fmt: skip
        if not isinstance(key, str) or (key not in named and len(key) != 1):
            raise ValueError(f"{key!r} is no key: press one character, or one of {', '.join(named)}")
        self.notes = []
        text = {"Enter": "\r"}.get(key, "" if key in named else key)
        code = named.get(key, ord(key.upper()) if len(key) == 1 and key.isascii() and key.isalnum() else 0)
        for kind in ("keyDown" if text else "rawKeyDown", "keyUp"):
            more = {"text": text} if text and kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **more)
        self.settle()

    def read(self) -> None:
        """Read the page as it is now into `url`, `lines` and `controls`."""
        try:
            page = self.evaluate("weave.read()")
        except Refused:
            raise TimeoutError("the page changes all the time: it can't be read") from None
        self.url = page["url"]
        cut = ["(the page is larger than 2 MiB: this is its beginning)"] if page["cut"] else []
        self.lines = cut + live_lines(page["html"])
        self.controls = [Control(*one) for one in page["controls"]]

    def settle(self) -> None:
        """Wait until the page has loaded and its requests have ended, but not long."""
        began = time.monotonic()
        while time.monotonic() - began < FIRST_CHANGE_SECONDS and not self.loading:
            self.receive(FIRST_CHANGE_SECONDS / 4)
        while self.loading and time.monotonic() - began < LOAD_SECONDS:
            self.receive(0.1)
        loaded = time.monotonic()
        self.last_change = loaded - QUIET_SECONDS if not self.requests else loaded
        while (now := time.monotonic()) - loaded < MAX_QUIET_SECONDS:
            if not self.requests and not self.loading and now - self.last_change >= QUIET_SECONDS:
                break
            self.receive(QUIET_SECONDS / 4)
        try:
            self.read()
        except TimeoutError as error:
            self.notes.append(str(error))
            if self.crashed:
                raise
            self.read()

    # ---- the protocol

    def evaluate(self, expression: str, attempts: int = 3) -> Any:
        """Evaluate JavaScript beside the page, and return its value. An error there raises ValueError."""
        answer: dict[str, Any] = {}
        for attempt in range(1, attempts + 1):
            try:
                if self.world is None:
                    world = self.call("Page.createIsolatedWorld", frameId=self.frame, worldName="weave")
                    self.world = int(world["executionContextId"])
                    self.call("Runtime.evaluate", expression=SCRIPT, contextId=self.world)
                how = {"contextId": self.world, "returnByValue": True, "userGesture": True}
                answer = self.call("Runtime.evaluate", expression=expression, **how)
                break
            except Refused:
                self.world = None
                if attempt == attempts:
                    raise
        if details := answer.get("exceptionDetails"):
            text = str(details.get("exception", {}).get("description", details.get("text", "")))
            raise ValueError(text.split("\n")[0].removeprefix("Error: "))
        return answer["result"].get("value")

    def call(self, method: str, seconds: float = CALL_SECONDS, /, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol. Raises Ended, Refused or TimeoutError."""
        number = self.send(method, parameters)
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if self.crashed:
                raise TimeoutError(CRASHED)
            answer = self.receive(left, number)
            if answer is None:
                continue
            if "error" in answer:
                raise Refused(f"{method}: {answer['error'].get('message', '')}")
            return dict(answer["result"])
        self.send("Runtime.terminateExecution", {})
        raise TimeoutError(
            f"{self.url or 'the page'} does not answer: its JavaScript ran for {seconds:g} s and was ended"
        )

    def send(self, method: str, parameters: dict[str, Any]) -> int:
        self.number += 1
        message: dict[str, Any] = {"id": self.number, "method": method, "params": parameters}
        if self.session and not method.startswith(("Target.", "Browser.")):
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        try:
            while data:
                data = data[os.write(self.to_chromium, data) :]
        except OSError:
            raise Ended("chromium has ended: close this tool, and open it again if it is needed") from None
        return self.number

    def receive(self, seconds: float, number: int | None = None) -> dict[str, Any] | None:
        """Handle what comes within so many seconds. Return the answer to the call `number` once it is there."""
        deadline = time.monotonic() + seconds
        while True:
            text, found, rest = self.buffer.partition(b"\0")
            if found:
                self.buffer = rest
                message = json.loads(text)
                if "id" not in message:
                    self.on_event(message["method"], message["params"])
                elif message["id"] == number:
                    return dict(message)
                continue
            if self.crashed or not select.select([self.from_chromium], [], [], max(deadline - time.monotonic(), 0))[0]:
                return None
            data = os.read(self.from_chromium, 2**18)
            if not data:
                raise Ended("chromium has ended: close this tool, and open it again if it is needed")
            self.buffer += data
            if number is None:
                deadline = 0.0

    def on_event(self, event: str, told: dict[str, Any]) -> None:
        mine = told.get("frameId", told.get("frame", {}).get("id")) == self.frame
        self.last_change = time.monotonic()
        match event:
            case "Page.javascriptDialogOpening":
                self.notes.append(f"The page asked or said: {told['message']!r:.400} (it got yes)")
                self.send("Page.handleJavaScriptDialog", {"accept": True, "promptText": told.get("defaultPrompt", "")})
            case "Page.frameStartedLoading" | "Page.frameStartedNavigating" if mine:
                self.loading = True
            case "Page.frameStoppedLoading" if mine:
                self.loading = False
            case "Page.frameNavigated" if mine:
                self.world = None
            case "Network.requestWillBeSent" if told.get("type") != "EventSource":
                self.requests.add(told["requestId"])
            case "Network.loadingFinished" | "Network.loadingFailed":
                self.requests.discard(told["requestId"])
                if told.get("type") == "Document" and told.get("errorText") not in (None, "net::ERR_ABORTED"):
                    self.status = f"no answer: {told['errorText']}"
            case "Network.responseReceived" if mine and told["type"] == "Document":
                answer = told["response"]
                self.status = f"{answer['status']} {answer.get('statusText', '')}".strip()
            case "Page.downloadWillBegin":
                self.notes.append(f"A download was refused: {told.get('url', '')}")
            case "Inspector.targetCrashed":
                self.loading, self.crashed, self.world = False, True, None

    def close(self) -> None:
        """End Chromium, and delete its files."""
        process = getattr(self, "process", None)
        if process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            for end in (self.to_chromium, self.from_chromium):
                with contextlib.suppress(OSError):
                    os.close(end)
        shutil.rmtree(self.folder, ignore_errors=True)
