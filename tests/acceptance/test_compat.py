"""`python -m tests.compat`: what it says of files whose further ticks fail."""

from pathlib import Path

from tests.compat.__main__ import OLDER, Outcome, further_ticks
from tests.support.installation import Installation

FILE = """
def counted(self):
    self.update_cache("looks", (self.get_cache("looks") or 0) + 1)
    {more}
    return "look %d" % self.get_cache("looks")

def action_start(self):
    main = agent.subagent("main", None, "Look around", {{}}, 5)
    main.add_observation_view("Looks", counted)

self.add_action("Start", action_start)
"""


def outcome(installation: Installation, file: Path, more: str) -> Outcome:
    file.write_text(FILE.format(more=more))
    return Outcome(file.name, "ok", further=further_ticks(installation, file, None))


def test_a_file_fails_with_the_reason_if_its_trace_fails(installation: Installation, tmp_path: Path) -> None:
    fine = outcome(installation, tmp_path / "fine.py", "")
    assert (fine.further, fine.failed) == ("ended: ticks, 2 ticks", False)
    # Its first view, which the first tick shows, is fine. The environment that is killed is rebuilt some times.
    dies = outcome(installation, tmp_path / "dies.py", "if self.get_cache('looks') > 1: os.kill(os.getpid(), 9)")
    assert dies.failed
    assert dies.further.startswith("failed: the environment process died")
    refused = outcome(installation, tmp_path / "refused.py", "return missing(\n")
    assert refused.failed
    assert "SyntaxError" in refused.further or "refused.py" in refused.further


def test_files_of_the_older_interface_do_not_fail() -> None:
    assert not Outcome("old.py", OLDER).failed
    assert Outcome("new.py", "ValueError: no").failed
