"""The command, as a user runs it."""

import re
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

from weavegen.services import schema

ROOT = Path(__file__).parents[2]
SERVE = [sys.executable, "-m", "weavegen.cli", "serve"]


def test_it_prints_its_address_and_ends_on_request(postgres_url: str) -> None:
    schema.upgrade(postgres_url)
    words = [*SERVE, "--port", "0", "--json"]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as viewer:
        assert viewer.stdout is not None
        assert viewer.stderr is not None
        found = next(filter(None, (re.search(r'"url": "([^"]+)"', line) for line in viewer.stdout)))
        with urllib.request.urlopen(found[1], timeout=60) as answer:
            assert b"There are no jobs yet" in answer.read()
        with urllib.request.urlopen(f"{found[1]}/events/jobs", timeout=60) as page_that_is_open:
            assert page_that_is_open.readline() == b"retry: 1000\n"
            viewer.terminate()
            page_that_is_open.read()  # to the end, because the viewer closes it
        viewer.wait(timeout=60)
        assert viewer.stderr.read() == ""


def test_a_port_in_use_is_refused(postgres_url: str) -> None:
    schema.upgrade(postgres_url)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = subprocess.run([*SERVE, "--port", str(port)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == (
        f"weavegen: can't listen on 127.0.0.1:{port} (Address already in use): give another port, "
        "or 0 for a free port\n"
    )
