"""HTTP clients with 2,000 requests in flight from one process, as in a worker of `celery -P threads`.

Threads make one blocking request after another. A server in another process waits and then answers, so that at most
threads
latency requests per second are possible. Each client has a process of its own.
"""

import asyncio
import importlib.util
import json
import os
import resource
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from bench.bars import Figure, table

USED = "urllib3"
"""The client that weavegen uses. The others are measured for comparison."""
TIMEOUT, CONNECT = 300.0, 5.0
"""Timeout in seconds for an answer and for a connection."""
HEADERS = {"Content-Type": "application/json", "Authorization": "Bearer none"}
LEAD = 3.0
"""Seconds in which all threads start, before the first request."""
PROMPT = '    if page["board"][4] not in ("X", "O"):  # look first, then move\n' * 425
"""Gives a request of about 30 kB."""
TOKENS = 64
"""The text of each of the answer's 8 choices, so that the answer has about 20 kB."""

Call = Callable[[dict[str, Any]], bytes]
"""Makes one request and returns the body of the answer. Exceptions are those of the library."""


@dataclass(frozen=True)
class Load:
    threads: int = 2000
    each: int = 3
    """Number of requests that each thread makes in sequence."""
    latency: float = 5.0
    """Seconds that the server waits before it answers."""
    spread: bool = True
    """Whether the first requests are spread evenly over one latency, as in a long run, and not sent all at once."""


@dataclass(frozen=True)
class Measured:
    rate: float
    """Requests per second."""
    share: float
    """`rate` in percent of threads / latency."""
    cpu: float
    """Milliseconds of CPU per request, in the client's process."""
    median: float
    """Milliseconds that a request took beyond the server's latency."""
    p99: float
    peak: float
    """Largest resident memory, MiB."""
    errors: int


def run(console: Console) -> list[Figure]:
    load, measured = Load(), {}
    for name in CLIENTS:
        if name != USED and importlib.util.find_spec(name) is None:  # without USED there is no figure for the bar
            console.print(f"\n{name} is not installed: left out")
        else:
            measured[name] = measure(name, load)
    title = f"\n{load.threads:,} requests in flight, each answered after {load.latency:g} s"
    columns = ("client", "requests/s", "% of ideal", "CPU ms each", "ms late, median", "p99", "peak MiB", "errors")
    console.print(table(title, columns, [[name, *asdict(result).values()] for name, result in measured.items()]))
    return [Figure(f"share of the ideal rate ({USED})", measured[USED].share, "%", at_least=95)]


def measure(name: str, load: Load) -> Measured:
    """Start a server and a client, and wait for the end of the client."""
    command = [sys.executable, "-m", "bench.in_flight"]
    with subprocess.Popen([*command, "serve", str(load.latency)], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            port = server.stdout.readline().strip()
            output = subprocess.check_output([*command, name, port, json.dumps(asdict(load))])
        finally:
            server.kill()
    return Measured(**json.loads(output))


def with_urllib3(url: str, threads: int) -> Call:
    import urllib3

    timeout = urllib3.Timeout(connect=CONNECT, read=TIMEOUT)
    pool = urllib3.PoolManager(maxsize=threads, timeout=timeout, retries=False)

    def call(request: dict[str, Any]) -> bytes:
        answer = pool.request("POST", f"{url}/completions", body=msgspec.json.encode(request), headers=HEADERS)
        assert answer.status == 200
        return answer.data

    return call


def with_aiohttp(url: str, threads: int) -> Call:
    """One event loop in a thread of its own. The callers wait for futures."""
    import aiohttp

    timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT, sock_read=TIMEOUT)
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()

    async def start() -> aiohttp.ClientSession:
        return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=threads), timeout=timeout)

    session = asyncio.run_coroutine_threadsafe(start(), loop).result()

    async def post(body: bytes) -> bytes:
        async with session.post(f"{url}/completions", data=body, headers=HEADERS) as answer:
            assert answer.status == 200
            return await answer.read()

    return lambda request: asyncio.run_coroutine_threadsafe(post(msgspec.json.encode(request)), loop).result()


def with_openai(url: str, threads: int) -> Call:
    """The library with its defaults, which allow at most 1,000 connections."""
    import openai

    timeout = openai.Timeout(TIMEOUT, connect=CONNECT)
    client = openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=timeout)
    return lambda request: client.completions.with_raw_response.create(**request).content


CLIENTS = {"urllib3": with_urllib3, "aiohttp": with_aiohttp, "openai": with_openai}


def drive(call: Call, load: Load) -> Measured:
    """Have all threads make their requests. Raises RuntimeError if nearly all fail."""
    late: list[float] = []
    errors: list[Exception] = []
    step = load.latency / load.threads if load.spread else 0.0
    begin = time.monotonic() + LEAD

    def work(number: int) -> None:
        time.sleep(begin + number * step - time.monotonic())
        for turn in range(load.each):
            request = {"model": "none", "prompt": f"{number} {turn}\n{PROMPT}", "n": 8, "logprobs": 0}
            sent = time.monotonic()
            try:
                assert len(msgspec.json.decode(call(request))["choices"]) == 8
            except Exception as error:  # noqa: BLE001 - whatever the library raises is counted
                errors.append(error)
            else:
                late.append(time.monotonic() - sent - load.latency)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(load.threads)]
    for thread in threads:
        thread.start()
    time.sleep(begin - time.monotonic())  # raises ValueError if the threads did not start in time
    cpu = time.process_time()
    for thread in threads:
        thread.join()
    rate = len(late) / (time.monotonic() - begin - step * (load.threads - 1))
    if len(late) < 2:
        raise RuntimeError(f"{len(errors)} requests failed, the first with {errors[0]!r}")
    cuts = statistics.quantiles(late, n=100)
    status = Path("/proc/self/status").read_text()
    return Measured(
        rate=rate,
        share=100 * rate * load.latency / load.threads,
        cpu=1000 * (time.process_time() - cpu) / (load.threads * load.each),
        median=1000 * cuts[49],
        p99=1000 * cuts[98],
        peak=int(status.partition("VmHWM:")[2].split()[0]) / 1024,
        errors=len(errors),
    )


async def serve(latency: float) -> None:
    """Print the port, then answer every request after `latency` seconds: HTTP/1.1, connections kept alive."""
    logprobs = {"tokens": ["token_id:1234"] * TOKENS, "token_logprobs": [-0.12345678] * TOKENS}
    body = json.dumps({"choices": [{"index": n, "text": "a move\n" * 40, "logprobs": logprobs} for n in range(8)]})
    answer = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                asked = (await reader.readuntil(b"\r\n\r\n")).lower()
                await reader.readexactly(int(asked.partition(b"content-length:")[2].split()[0]))
                await asyncio.sleep(latency)
                writer.write(answer)
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)  # noqa: T201
    await server.serve_forever()


def main(what: str, *arguments: str) -> None:
    """Run `serve LATENCY`, or a client, given its name, the port and the load as JSON."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if what == "serve":
        asyncio.run(serve(float(arguments[0])))
    load = Load(**json.loads(arguments[1]))
    call = CLIENTS[what](f"http://127.0.0.1:{arguments[0]}/v1", load.threads)
    print(json.dumps(asdict(drive(call, load))), flush=True)  # noqa: T201
    os._exit(0)  # otherwise aiohttp reports its open session


if __name__ == "__main__":
    main(*sys.argv[1:])
