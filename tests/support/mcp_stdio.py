"""An MCP server over stdio with nothing but the standard library, as it runs in boxes. Its tools can misbehave."""

import json
import os
import sys
import time
from typing import Any

TEXT = {
    "type": "object",
    "properties": {"text": {"type": "string", "description": "What to say."}},
    "required": ["text"],
}
SECONDS = {"type": "object", "properties": {"seconds": {"type": "number"}}}
TOOLS = {
    "echo": TEXT,
    "count": {"type": "object"},
    "sleep": SECONDS,
    "fail": TEXT,
    "die": TEXT,
    "big": TEXT,
    "picture": {},
    "noise": {},
    "env": TEXT,
}
calls = 0


def content(*parts: dict[str, Any], error: bool = False) -> dict[str, Any]:
    return {"content": list(parts), "isError": error}


def call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    global calls
    calls += 1
    with open("/app/calls", "a") as file:
        file.write(name + "\n")
    text = str(arguments.get("text"))
    match name:
        case "count":
            text = str(calls)
        case "sleep":
            time.sleep(arguments["seconds"])
            text = "slept"
        case "fail":
            return content({"type": "text", "text": f"no: {text}"}, error=True)
        case "die":
            sys.stderr.write("last words\n")
            sys.stderr.flush()
            os._exit(3)
        case "big":
            text = "x" * int(text)
        case "picture":
            return content(
                {"type": "text", "text": "look"}, {"type": "image", "mimeType": "image/png", "data": "AAAA" * 100}
            )
        case "noise":
            sys.stdout.write("this is no message\n[1, 2]\n")
            ask({"method": "roots/list", "id": "mine"})
        case "env":
            text = os.environ.get(text, "(unset)")
    return content({"type": "text", "text": text})


def ask(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        params = message.get("params") or {}
        match message.get("method"):
            case "initialize":
                info = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {}}
                ask({"id": message["id"], "result": info})
            case "tools/list":  # a page for each tool
                number = int(params.get("cursor", 0))
                name = list(TOOLS)[number]
                tool = {"name": name, "description": f"Does {name}.", "inputSchema": TOOLS[name]}
                more = {"nextCursor": str(number + 1)} if number + 1 < len(TOOLS) else {}
                ask({"id": message["id"], "result": {"tools": [tool], **more}})
            case "tools/call" if params["name"] in TOOLS:
                ask({"id": message["id"], "result": call(params["name"], params["arguments"])})
            case "tools/call":
                ask({"id": message["id"], "error": {"code": -32602, "message": f"unknown tool {params['name']}"}})


if __name__ == "__main__":
    main()
