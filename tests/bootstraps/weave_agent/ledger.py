import os
import json
import time
import random
import asyncio
import threading
import http.server
import urllib.request
import libtmux
from functools import partial


class LedgerHandler(http.server.BaseHTTPRequestHandler):
    entries = []

    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"entries": self.entries}).encode())

    def do_POST(self):
        length = int(self.headers["Content-Length"])
        self.entries.append(json.loads(self.rfile.read(length)))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *arguments):
        pass


ledger_server = http.server.ThreadingHTTPServer(("localhost", 8080), LedgerHandler)
threading.Thread(target=ledger_server.serve_forever, daemon=True).start()


def read_ledger():
    with urllib.request.urlopen("http://localhost:8080/", timeout=5) as response:
        return json.loads(response.read())["entries"]


def book(amount):
    data = json.dumps(amount).encode()
    urllib.request.urlopen(urllib.request.Request("http://localhost:8080/", data=data), timeout=5).read()


def observe_ledger(subagent):
    """Callbacks get the subagent, under whatever name."""
    return f"Entries: {read_ledger()}"


def observe_self(subagent):
    last = agent.find_last_block_of_type("action")
    return (
        f"{subagent.name} at block {agent.current_block_index()}, "
        f"{round(subagent.end_time - time.time()) // 3600} hours left, block size {subagent.block_size}, "
        f"{len(subagent.context)} > 0 characters of context: {len(subagent.context) > 0}, "
        f"last action: {None if last is None else last['type']}, "
        f"views: {[view['title'] for view in subagent.observation_views]}, children: {subagent.children}"
    )


async def check_balance(subagent):
    """Evaluations may be coroutines."""
    await asyncio.sleep(0)
    return sum(read_ledger()) >= 30


def check_with_argument(minimum, subagent):
    return len(read_ledger()) >= minimum


def action_open_ledger(subagent):
    # What a bootstrap's callback gets is the mock subagent; the real one is made here.
    schema = {"balanced": "boolean", "check_balance": "boolean"}
    main = agent.subagent("main", None, "Bring the ledger to thirty", schema, args.budget)
    main.task.add_evaluation("Is the balance thirty or more?", check_balance)
    main.task.add_evaluation("Is there an entry?", partial(check_with_argument, 1))
    main.add_observation_view("Ledger", observe_ledger)
    main.add_observation_view("Myself", observe_self, tool=None)
    main.update_cache("opened", time.time())
    assert main.get_cache("opened") > 0, "Does the cache keep what it is given?"
    main.delete_cache("opened")
    assert os.getcwd() == "/app", "Is the working directory /app?"
    assert isinstance(args.port, int) and args.model_name, "Are the arguments there?"
    assert "main" in agent.view_board(), "Does the board show the main agent?"
    assert len(main.task.evaluations) == 2, "Does the task have its evaluations?"
    assert subagent.name == "bootstrap", "Is this the mock?"
    book(random.choice([10, 20]))
    return main.current_tick is not None and main.completed


self.add_action("Open the ledger and book something", action_open_ledger)


def evaluate_first_entry(subagent):
    return len(read_ledger()) == 1


self.add_evaluation("Is there one entry?", evaluate_first_entry)
