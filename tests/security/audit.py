"""Part of `make check`: known vulnerabilities of the versions in requirements.lock, by pip-audit.

Exit code 1 if there is a known vulnerability, 0 if there is none or if nothing could be looked up (which is
reported), 2 if pip-audit is missing.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import msgspec

LOCK = Path(__file__).parents[2] / "requirements.lock"
TIMEOUT = 15
"""Timeout in seconds for an answer of the service."""


class Vulnerability(msgspec.Struct):
    id: str
    fix_versions: list[str] = []


class Dependency(msgspec.Struct):
    name: str
    version: str = ""
    skip_reason: str | None = None
    vulns: list[Vulnerability] = []


class Report(msgspec.Struct):
    dependencies: list[Dependency]


def judge(report: str, complaint: str) -> tuple[int, str]:
    """Exit code and message, from pip-audit's JSON and its standard error."""
    try:
        found = msgspec.json.decode(report, type=Report).dependencies
    except msgspec.MsgspecError:
        last = ([line for line in complaint.splitlines() if line.strip()] or ["it said nothing"])[-1]
        return 0, f"nothing could be looked up, so nothing is known: {last[:300]}"
    lines = [
        f"{one.name} {one.version}: {bad.id}, mended in {', '.join(bad.fix_versions) or 'none'}"
        for one in found
        for bad in one.vulns
    ]
    unknown = [one.name for one in found if one.skip_reason is not None]
    if unknown:
        few = ", ".join(unknown[:5]) + (", ..." if len(unknown) > 5 else "")
        lines.append(f"{len(unknown)} of {len(found)} could not be looked up, so nothing is known of them: {few}")
    if len(unknown) < len(found) and not any(one.vulns for one in found):
        lines.append(f"no known vulnerability in {len(found) - len(unknown)} of {len(found)}")
    return int(any(one.vulns for one in found)), "\n".join(lines)


def main(program: str | None = None) -> int:
    """`program` is the path of pip-audit; by default it is searched beside the interpreter and on the PATH."""
    beside = Path(sys.executable).parent / "pip-audit"
    program = program or (str(beside) if beside.exists() else shutil.which("pip-audit"))
    if program is None:
        sys.stderr.write("pip-audit is not installed: install the extra dev (make setup)\n")
        return 2
    options = ["--disable-pip", "--require-hashes", "--progress-spinner", "off", "--timeout", str(TIMEOUT)]
    done = subprocess.run([program, "-r", LOCK, *options, "-f", "json"], capture_output=True, text=True)
    code, said = judge(done.stdout, done.stderr)
    sys.stdout.write(f"dependencies: {said}\n")
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
