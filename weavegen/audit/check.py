"""What a check is, and how its file is read.

A check that SQL can express is a file checks/NAME.sql: a header of comments, then one query for all traces, which
gives a row (trace, place, problem) for each finding. `{scope}` in it stands for the condition on `traces t`,
`{live}` and `{sampled}` for the common table expressions of these names in sql/.
"""

import re
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "checks"
HEADER = re.compile(
    r"-- proves: (?P<proves>.+?)\n-- subject: (?P<subject>.+?)\n(-- findings: (?P<findings>.+?)\n)?", re.S
)
WHILE_DOWN = "remarks while the installation is down"


@dataclass(frozen=True)
class Check:
    """A property that the audit verifies."""

    name: str
    proves: str
    subject: str
    """What it examines: a column of sql/counts.sql, or `host`."""
    remark: bool = False
    """Its findings are remarks, not damage."""
    waits: bool = False
    """Its findings are remarks while the whole installation is down, because `weavegen up` resolves them."""
    sql: str = ""
    """Empty: Python code makes the findings."""


def sql_check(name: str) -> Check:
    """The check in checks/NAME.sql."""
    text = (FOLDER / f"{name}.sql").read_text()
    header = HEADER.match(text)
    assert header is not None, f"{name}.sql has no header"
    return Check(
        name,
        header["proves"].replace("\n--  ", ""),
        header["subject"],
        remark=header["findings"] == "remarks",
        waits=header["findings"] == WHILE_DOWN,
        sql=text[header.end() :],
    )
