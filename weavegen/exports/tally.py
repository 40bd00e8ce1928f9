"""What the card says about rows as training data: repeated texts, one-sided labels, and who checked the evaluator."""

import contextlib
import hashlib
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from weavegen.database import Connection
from weavegen.exports.format import Format, Key, Row, RowFormat, Source
from weavegen.kernel.template import BOS
from weavegen.store import releases

COUNT = "insert into seen values (?, 1) on conflict do update set times = times + 1 returning times"
BEGUN = "the prompt begins with the BOS token: a tokenizer that adds it gives two (tokenizer.add_bos_token = False)"
REPEATED = "the text stands in an earlier row too (--per-text 1 leaves such rows out)"
LEAST_LABELS, RARE = 20, 0.1
"""At least this many labels are one-sided if the rarer has a smaller share: as in viewer/sql/report/training.sql."""


@contextlib.contextmanager
def tallied(format: Format) -> Iterator[Format]:
    """The format without the rows beyond --per-text. It counts repeated texts, labels and BOS tokens in the source."""
    if not isinstance(format, RowFormat) or not (format.texts or format.label):
        yield format
        return
    # SQLite keeps the hashes in a temporary file: any number of them in constant memory.
    with contextlib.closing(sqlite3.connect("", isolation_level=None)) as seen:
        seen.execute("create table seen (digest blob primary key, times integer not null) without rowid")
        seen.execute("begin")

        def rows(source: Source, trace: int, keys: Iterator[Key]) -> Iterator[Row]:
            most = source.options.per_text
            for row in format.rows(source, trace, keys):
                times = 1
                if format.texts:
                    digest = hashlib.sha256("\0".join(row[name] for name in format.texts).encode()).digest()
                    [times] = seen.execute(COUNT, [digest]).fetchone()
                if most is not None and times > most:
                    source.left_out[f"the text stands in earlier rows (--per-text {most})"] += 1
                    continue
                if times > 1:
                    source.notes[REPEATED] += 1
                if row.get("prompt", "").startswith(BOS):
                    source.notes[BEGUN] += 1
                labels = row[format.label] if format.label else []
                for label in labels if isinstance(labels, list) else [labels]:
                    source.labels[row.get("source", ""), label] += 1
                yield row

        yield replace(format, rows=rows)


def remarks_of(source: Source) -> Iterator[str]:
    """The notes about the written rows, and a warning for each origin whose labels are nearly all the same."""
    for note, rows in sorted(source.notes.items()):
        yield f"In {rows} rows: {note}"
    for origin in sorted({origin for origin, _ in source.labels}):
        yes, no = source.labels[origin, True], source.labels[origin, False]
        if yes + no >= LEAST_LABELS and min(yes, no) < RARE * (yes + no):
            share = f"{max(yes, no) / (yes + no):.0%}"
            labels = f"{yes} labels{origin and f' ({origin})'} are true and {no} false"
            yield f"Warning: {labels}: a model that always gives the same answer is right for {share} of them"


def checks(conn: Connection, traces: Iterable[int]) -> list[str]:
    """Whether people and executions agree with the evaluator's answers about texts of these traces."""
    count: Counter[str] = Counter()
    for row in releases.about(conn, "exports/evaluator-checks", traces):
        count.update(row._asdict())
    lines = ["Warning: nobody checked the evaluator whose values these are: people annotated no text of these traces"]
    if people := count["people"]:
        lines = [f"The evaluator agrees with people about {count['people_agree'] / people:.0%} of {people} texts"]
    if ran := count["executed"]:
        share = f"{count['executed_agree'] / ran:.0%} of {ran} executed blocks"
        lines.append(f"The evaluator was right about whether {share} run")
    return lines
