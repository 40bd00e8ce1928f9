"""`weavegen export` on traces that real workers wrote with the simulated model, compared with SQL."""

import contextlib
import hashlib
import itertools
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from simulation import tokenizer
from tests.support import TICTACTOE
from tests.support.installation import Installation, installed
from weavegen import exports, sql
from weavegen.cli.app import resource_problem
from weavegen.database import Connection, Statement
from weavegen.errors import UsageError, WeavegenError
from weavegen.exports import format, write
from weavegen.exports.completions import find
from weavegen.exports.folder import MARK, new_folder
from weavegen.exports.format import Options, RowFormat, Source
from weavegen.exports.read_prompts import END
from weavegen.exports.shards import Shards
from weavegen.exports.tally import remarks_of, tallied
from weavegen.kernel import prompts
from weavegen.kernel.context import STOP
from weavegen.kernel.selection import mean_score, penalised
from weavegen.kernel.steps import Penalties, YesNo
from weavegen.store import annotations, urls
from weavegen.store.annotations import Place
from weavegen.store.session import pooled

TESTED = "test-exports"
"""The application name of these tests' connections."""
OURS = ("text", "sft", "dpo", "kto", "grpo", "stepwise", "verifier")
Row = dict[str, Any]


def stopped(text: str) -> str:
    """The part of a completion that sampling would have kept."""
    return min((text.split(stop)[0] for stop in STOP), key=len)


@pytest.fixture(scope="module")
def corpus() -> Iterator[Installation]:
    """Traces whose tokens were all kept, and one trace whose prompts were too long for the model."""
    with installed() as one:
        whole = one.json("enqueue", TICTACTOE, "-n", "4", "--ticks", "6", "--seed", "3", "--set", "tokens=all")
        cut = one.json("enqueue", TICTACTOE, "-n", "1", "--ticks", "4", "--seed", "4", "--set", "context=4500")
        for job in (whole, cut):
            one.wait(int(job["job"]))
        assert one.sql("select distinct status from traces") == [("ended",)]
        yield one


@pytest.fixture
def conn(corpus: Installation, monkeypatch: pytest.MonkeyPatch) -> Iterator[Connection]:
    """A connection that rolls back its changes, in a process that uses the installation."""
    monkeypatch.setenv("WEAVEGEN_HOME", str(corpus.home))
    for name in ("DATABASE_URL", "WEAVEGEN_READER_URL"):
        monkeypatch.delenv(name, raising=False)
    db = pooled(urls.database_url(corpus.config), application_name=TESTED)
    with db.connect() as connection:
        yield connection
        connection.rollback()
    db.close()


def exported(corpus: Installation, out: Path, *arguments: str) -> Any:
    """The summary that the command prints for a successful export."""
    return corpus.json("export", "--out", out, *arguments)


def opened(folder: Path, cache: Path) -> dict[str, Any]:
    """An export as `datasets.load_dataset` opens it, by split."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # from the library's own imports
        import datasets

        datasets.disable_progress_bars()
        return dict(datasets.load_dataset(str(folder), cache_dir=str(cache)))


def load(folder: Path, cache: Path) -> dict[str, list[Row]]:
    """The rows of an export, by split."""
    return {name: list(split) for name, split in opened(folder, cache).items()}


def rows(corpus: Installation, tmp_path: Path, *arguments: str) -> list[Row]:
    """All rows of an export with one split."""
    exported(corpus, tmp_path / "out", *arguments)
    return load(tmp_path / "out", tmp_path / "cache")["train"]


def sums(folder: Path) -> dict[str, str]:
    """Hash of each file in a folder."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


# ------------------------------------------------------------------------------------------------ formats


@pytest.mark.parametrize("name", OURS)
def test_load_dataset_opens_every_format_with_the_rows_of_its_view(
    corpus: Installation, tmp_path: Path, name: str
) -> None:
    format = exports.find(name)
    assert isinstance(format, RowFormat)
    said = exported(corpus, tmp_path / "out", "--format", name, "--split", "train=0.6,test=0.4")
    found = load(tmp_path / "out", tmp_path / "cache")
    assert {split: len(rows) for split, rows in found.items()} == said["rows"]
    assert min(said["rows"].values()) > 0
    condition, reason = format.weak(Options()) or ("false", "")
    query = f"select count(*), count(*) filter (where {condition}) from {format.view} where {format.narrow(Options())}"
    [(expected, weak)] = corpus.sql(query)
    assert sum(said["rows"].values()) == expected - weak
    assert (said["left_out"], said["simulated"]) == ({reason: weak} if weak else {}, True)
    assert (name == "dpo") == bool(weak)
    for row in itertools.chain(*found.values()):
        assert list(row) == format.schema.names
    traces = [{row["trace_id"] for row in rows} for rows in found.values()]
    assert traces[0].isdisjoint(traces[1])
    card = (tmp_path / "out" / "README.md").read_text()
    assert "SIMULATED MODEL DATA" in card
    assert all(f"| `{column}` |" in card for column in format.schema.names)


def test_json_lines_have_their_types_also_where_all_values_are_null(corpus: Installation, tmp_path: Path) -> None:
    """Else `datasets` fails where a value follows 10 MB of nulls."""
    format = exports.find("atropos")
    assert isinstance(format, RowFormat)
    exported(corpus, tmp_path / "out", "--format", "atropos", "--limit", "2")
    schema = opened(tmp_path / "out", tmp_path / "cache")["train"].features.arrow_schema
    assert dict(zip(schema.names, schema.types, strict=True)) == dict(
        zip(format.schema.names, format.schema.types, strict=True)
    )


def test_every_column_of_every_format_and_view_is_described(corpus: Installation) -> None:
    listed = corpus.json("export", "--list")
    assert set(OURS) | {"py", "json"} <= {one["format"] for one in listed}
    for one in listed:
        assert all(one["columns"].values()), one
        silent = corpus.sql(
            "select attname from pg_attribute where attrelid = cast(:view as regclass) and attnum > 0 "
            "and col_description(attrelid, attnum) is null",
            view=one["view"],
        )
        assert silent == [], one["view"]
    assert "--where may use" in corpus.cli("export", "--list", "--format", "dpo").stdout


def test_a_prompt_is_what_the_model_read_token_by_token(corpus: Installation, tmp_path: Path) -> None:
    found = rows(corpus, tmp_path, "--format", "sft")
    read = {
        (trace, index): (blocks, asking, body, prefix)
        for trace, index, blocks, asking, body, prefix in corpus.sql(
            """
            select v.trace_id, v.index,
              array(select k.token_ids::text from block_tokens k where k.trace_id = p.trace_id and (k.index < 2
                or k.index between p.first_block and v.index - 1) order by k.index),
              p.token_ids, v.body, coalesce(s.request -> 'prompt' ->> 'prefix', '')
            from sft_examples v join prompts p on p.step_id = v.step_id join steps s on s.id = v.step_id
            """
        )
    }
    assert len(found) == len(read)
    assert {row["exact_prompt"] for row in found} == {True, False}
    for row in found:
        blocks, asking, body, prefix = read[row["trace_id"], row["index"]]
        assert body == prefix + stopped(row["completion"])
        assert row["completion"].endswith(f"\n#q: {prompts.questions(row['type'])[0]} ")
        assert f"#startblock type: {row['type']}\n#index {row['index']}\n" in row["prompt"]
        assert row["prompt"].endswith(prefix)
        if row["exact_prompt"]:
            ids = [number for block in blocks for number in json.loads(f"[{block[1:-1]}]")]
            assert row["prompt"] == tokenizer.decode(ids) + tokenizer.decode(asking)


def test_pairs_are_ordered_by_score_penalties_and_outcome(corpus: Installation, tmp_path: Path) -> None:
    found = rows(corpus, tmp_path, "--format", "dpo", "--per-block", "3", "--min-margin", "0")
    penalties = Penalties.__struct_fields__
    worth: dict[tuple[int, int, str], set[float]] = {}
    for trace, index, text, preference, yes, no, *lost in corpus.sql(
        f"""
        select c.trace_id, c.block_index, c.text, b.preference, array_agg(a.yes), array_agg(a.no),
          {", ".join(f"n.{name}" for name in penalties)}
        from candidates c join scores a on a.candidate_id = c.id and a.stage = 'selection'
        join penalties n on n.candidate_id = c.id left join blocks b on b.candidate_id = c.id
        group by c.id, b.id, n.candidate_id
        """
    ):
        score = mean_score([YesNo(yes=one, no=other) for one, other in zip(yes, no, strict=True)])
        value = penalised(score, Penalties(**dict(zip(penalties, lost, strict=True)))) + (preference or 0)
        worth.setdefault((trace, index, text.rstrip("\n")), set()).add(round(value, 9))
    kinds = {row["kind"] for row in found}
    assert kinds == {"candidates", "correction"}
    for row in found:
        begin = next(prefix for prefix in ("def action_", "def eval_", '"""', "") if row["prompt"].endswith(prefix))
        assert row["chosen"] != row["rejected"]
        if row["kind"] == "correction":
            assert row["margin"] is None
            continue
        assert row["margin"] == pytest.approx(row["chosen_value"] - row["rejected_value"])
        assert row["margin"] > 0 or row["outcome_differs"]
        if row["type"] in ("action", "evaluation"):
            for side in ("chosen", "rejected"):
                key = (row["trace_id"], row["index"], begin + stopped(row[side]))
                assert round(row[f"{side}_value"], 9) in worth[key]


def test_near_ties_are_left_out_unless_their_outcomes_differ(corpus: Installation, tmp_path: Path) -> None:
    strong = "count(*) filter (where margin >= {0} or outcome_differs)"
    query = f"select count(*), {strong} from preference_pairs where pair = 1"
    for name, options, least in (("usual", (), 1), ("wide", ("--min-margin", "2.5"), 2.5)):
        said = exported(corpus, tmp_path / name, "--format", "dpo", *options)
        [(all_, enough)] = corpus.sql(query.format(least))
        assert 0 < enough < all_
        assert said["rows"] == {"train": enough}
        reason = f"the values differ by less than {least:g}, and the outcomes do not differ (--min-margin)"
        assert said["left_out"] == {reason: all_ - enough}
        assert f"- Left out, {all_ - enough} rows: {reason}" in (tmp_path / name / "README.md").read_text()
    limited = exported(corpus, tmp_path / "few", "--format", "dpo", "--limit", "3")
    assert limited["rows"] == {"train": 3}
    line = refused(corpus, tmp_path / "none", "--format", "dpo", "--where", "not outcome_differs and margin < 0.5")
    assert "rows were left out" in line


@pytest.mark.parametrize("name", ["sft", "dpo", "kto"])
def test_repeated_texts_are_counted_and_can_be_left_out(corpus: Installation, tmp_path: Path, name: str) -> None:
    options = ("--format", name, *(("--min-margin", "0") if name == "dpo" else ()), "--split", "train=0.5,test=0.5")
    texts = ("chosen", "rejected") if name == "dpo" else ("completion",)

    def written(folder: str, *more: str) -> tuple[list[tuple[str, ...]], list[str], dict[str, int]]:
        said = exported(corpus, tmp_path / folder, *options, *more)
        found = itertools.chain(*load(tmp_path / folder, tmp_path / "cache").values())
        card = (tmp_path / folder / "README.md").read_text()
        assert all(f"- {remark}\n" in card for remark in said["remarks"])
        return [tuple(row[text] for text in texts) for row in found], said["remarks"], said["left_out"]

    every, remarks, left_out = written("every")
    repeated = len(every) - len(set(every))
    note = f"In {repeated} rows: the text stands in an earlier row too (--per-text 1 leaves such rows out)"
    assert ([note] if repeated else []) == [remark for remark in remarks if "earlier row" in remark]
    assert repeated or name == "dpo"
    assert not left_out
    for most in (1, 2):
        kept, remarks, left_out = written(f"most-{most}", "--per-text", str(most))
        times = Counter(every)
        assert Counter(kept) == {text: min(count, most) for text, count in times.items()}
        gone = len(every) - len(kept)
        assert left_out == ({f"the text stands in earlier rows (--per-text {most})": gone} if gone else {})


def test_the_card_warns_of_one_sided_labels(corpus: Installation, tmp_path: Path) -> None:
    def warnings_of(*options: str) -> list[str]:
        remarks = exported(corpus, tmp_path / str(len(list(tmp_path.iterdir()))), *options)["remarks"]
        return [remark for remark in remarks if "labels" in remark]

    [(good, bad)] = corpus.sql(
        "select count(*) filter (where label), count(*) filter (where not label) from kto_examples"
    )
    every = ("--format", "kto", "--per-block", "99")
    assert min(good, bad) >= 20
    assert warnings_of(*every) == []
    always = "a model that always gives the same answer is right for"
    assert warnings_of(*every, "--where", "label") == [
        f"Warning: {good} labels are true and 0 false: {always} 100% of them"
    ]
    asked = ("--format", "verifier", "--where", "source = 'ran' and label")
    [(ran,)] = corpus.sql("select count(*) from verifier_labels where source = 'ran' and label")
    assert warnings_of(*asked) == [f"Warning: {ran} labels (ran) are true and 0 false: {always} 100% of them"]
    assert warnings_of(*asked, "--limit", "19") == []  # too few to say


def test_the_card_counts_prompts_that_begin_with_a_bos_token() -> None:
    """Trainers whose tokenizer adds the token would read two."""
    sft, source = exports.find("sft"), Source(None)
    assert isinstance(sft, RowFormat)
    made = [{"prompt": f"{bos}Write.", "completion": f"Text {bos}."} for bos in ("<s>", "<|begin_of_text|>", "")]
    with tallied(replace(sft, rows=lambda source, trace, keys: iter(made))) as counted:
        assert isinstance(counted, RowFormat)
        assert list(counted.rows(source, 1, iter(()))) == made
    [remark] = remarks_of(source)
    assert remark.startswith("In 2 rows: the prompt begins with the BOS token")


def test_the_card_says_who_checked_the_evaluator(corpus: Installation, tmp_path: Path) -> None:
    remarks = exported(corpus, tmp_path / "before", "--format", "dpo")["remarks"]
    nobody = "Warning: nobody checked the evaluator whose values these are: people annotated no text of these traces"
    [(executed, right)] = corpus.sql(
        """
        select count(*), count(*) filter (where (s.yes >= s.no) = b.ran)
        from blocks b join scores s on s.candidate_id = b.candidate_id
        where b.ran is not null and s.score is not null and s.question like 'Will this action run without raising%'
          and (s.stage = 'raw' or not exists (
            select from scores r where r.candidate_id = b.candidate_id and r.stage = 'raw'))
          and b.trace_id in (select trace_id from preference_pairs where pair = 1 and (margin >= 1 or outcome_differs))
        """
    )
    runs = f"The evaluator was right about whether {right / max(executed, 1):.0%} of {executed} executed blocks run"
    assert remarks[-1 - bool(executed) :] == [nobody, runs][: 1 + bool(executed)]
    likely, unlikely = (
        corpus.sql(
            f"select trace_id, index from blocks where type = 'orientation' and score is not null order by {order}"
        )
        for order in ("score desc", "score")
    )
    db = pooled(urls.database_url(corpus.config), application_name=TESTED)
    try:
        with db.begin() as conn:
            for trace, index in (*likely[:2], unlikely[0]):
                annotations.save(conn, Place(trace, index), "anna", verdict="good")
        probable = [one for (one,) in corpus.sql("select predicted >= 0.5 from annotated_candidates")]
        assert len(probable) == 3
        remarks = exported(corpus, tmp_path / "after", "--format", "dpo")["remarks"]
        assert f"The evaluator agrees with people about {sum(probable) / 3:.0%} of 3 texts" in remarks
        assert nobody not in remarks
        assert "evaluator" not in str(exported(corpus, tmp_path / "sft", "--format", "sft")["remarks"])
    finally:
        with db.begin() as conn:
            conn.execute(Statement("delete from annotations"))
        db.close()


def test_failed_candidates_are_never_chosen_and_unscored_ones_are_in_no_pair(conn: Connection) -> None:
    query = Statement("select chosen_id, rejected_id, kind from preference_pairs where kind = 'candidates'")
    before = conn.execute(query).all()
    kept = conn.execute(
        Statement("select p.chosen_id from preference_pairs p where p.chosen_kept and p.kind = 'candidates' limit 1")
    ).scalar_one()
    conn.execute(Statement("update blocks set ran = false, preference = -0.5 where candidate_id = :id"), {"id": kept})
    assert kept not in [row.chosen_id for row in conn.execute(query)]
    unscored = before[0].rejected_id
    conn.execute(Statement("update scores set score = null where candidate_id = :id"), {"id": unscored})
    assert unscored not in {one for row in conn.execute(query) for one in row[:2]}
    values = conn.execute(
        Statement("select score, value from candidate_values where candidate_id = :id"), {"id": unscored}
    ).one()
    assert tuple(values) == (None, None)


def test_no_pair_is_another_one_in_reverse(conn: Connection) -> None:
    """A text that ran is the best one, however low its value: then no other text is better than it."""
    pairs = "preference_pairs p join blocks b on b.candidate_id = p.chosen_id and b.ran where p.kind = 'candidates'"
    [(kept,)] = conn.execute(Statement(f"select p.chosen_id from {pairs} order by p.chosen_id limit 1")).all()
    conn.execute(Statement("update scores set score = -9 where candidate_id = :id"), {"id": kept})
    worse = Statement("select count(*) from preference_pairs where kind = 'candidates' and rejected_id = :id")
    assert conn.execute(worse, {"id": kept}).scalar_one() == 0


def test_a_step_that_does_not_compile_does_not_tell_this(conn: Connection) -> None:
    found = """
        select v.trace_id, v.tick, v.ending, b.index, b.body from stepwise_examples v
        join blocks b on b.trace_id = v.trace_id and b.tick = v.tick and b.index > v.first_step and b.type = 'action'
        where v.candidate_id is null order by b.id limit 1
    """
    trace, tick, ending, index, body = conn.execute(Statement(found)).one()
    shown = "#startblock type: action\n#invalid_syntax x\n# " + body.replace("\n", "\n# ") + "\n#endblock\n"
    change = Statement(
        "update blocks set compiles = false, rendered = :shown where trace_id = :trace and index = :index"
    )
    conn.execute(change, {"shown": shown, "trace": trace, "index": index})
    row = sql.run(conn, "exports/stepwise", trace=trace, tick=[tick], ending=[ending]).one()
    [step] = [block for block in row.blocks if block["index"] == index]
    assert step["label"] is False
    assert step["rendered"] == f"#startblock type: action\n{body}\n#endblock\n"


def test_a_correction_is_a_failed_attempt_and_the_next_attempt_which_ran(corpus: Installation) -> None:
    found = corpus.sql(
        """
        select b.ran, b.compiles, a.ran, b.tick = a.tick, b.type = a.type, a.index > b.index,
          (select count(*) from blocks m where m.trace_id = b.trace_id and m.type = b.type
            and m.index > b.index and m.index < a.index),
          exists (select from blocks d where d.trace_id = b.trace_id and d.type = 'debug'
            and d.index > b.index and d.index < a.index)
        from preference_pairs p join blocks a on a.candidate_id = p.chosen_id
        join blocks b on b.candidate_id = p.rejected_id where p.kind = 'correction'
        """
    )
    assert found
    for ran, compiles, then, *rest in found:
        assert (ran is False or not compiles, then) == (True, True)
        assert rest == [True, True, True, 0, True]


def test_labels_of_single_candidates(corpus: Installation, tmp_path: Path) -> None:
    found = rows(corpus, tmp_path, "--format", "kto", "--per-block", "4")
    assert {row["because"] for row in found} >= {"ran", "failed", "valued"}
    for row in found:
        if row["because"] in ("ran", "valued"):
            assert row["because"] == "ran" or (row["label"] and row["value"] >= 1) or row["value"] < 0
        else:
            assert row["label"] is False
    most = max(
        sum(1 for _ in group)
        for _, group in itertools.groupby(sorted((row["trace_id"], row["index"], row["label"]) for row in found))
    )
    assert most == 4


def test_a_reward_function_gets_the_candidates_and_their_outcome(corpus: Installation, tmp_path: Path) -> None:
    found = rows(corpus, tmp_path, "--format", "grpo")
    bodies = {
        (trace, index): (text, tokens)
        for trace, index, text, tokens in corpus.sql(
            "select b.trace_id, b.index, c.text, b.block_size from blocks b join candidates c on c.id = b.candidate_id"
        )
    }
    assert len(found) == len(bodies)
    for row in found:
        text, tokens = bodies[row["trace_id"], row["index"]]
        assert row["prefix"] + stopped(row["samples"][row["kept"]]) == text.rstrip("\n")
        assert row["block_size"] == tokens
        assert len(row["samples"]) == len(row["sample_values"]) == len(row["sample_scores"]) >= 4
        assert not {"prompts", "completions", "completion"} & set(row)  # names that TRL reserves for itself


def test_steps_are_right_or_wrong_and_do_not_contain_the_label(corpus: Installation, tmp_path: Path) -> None:
    found = rows(corpus, tmp_path, "--format", "stepwise")
    blocks = {
        (trace, index): (type, body, ran, preference, compiles)
        for trace, index, type, body, ran, preference, compiles in corpus.sql(
            "select trace_id, index, type, body, ran, preference, compiles from blocks"
        )
    }
    assert {label for row in found for label in row["labels"]} == {True, False}
    for row in found:
        assert len(row["completions"]) == len(row["labels"]) == len(row["indexes"])
        for index, type, label, text in zip(
            row["indexes"], row["types"], row["labels"], row["completions"], strict=True
        ):
            known, body, ran, preference, compiles = blocks[row["trace_id"], index]
            assert type == known
            assert label is (compiles and (ran if ran is not None else preference >= 0))
            assert text.rstrip("\n").endswith(body.rpartition("\n")[2] + END.rstrip("\n"))
            assert not re.search(r"^#q: ", text, re.MULTILINE)


def test_a_tick_is_found_by_the_key_of_an_earlier_version(corpus: Installation) -> None:
    """Releases keep the keys of their rows. Before version 0.2 the key of a tick had no third number."""
    db = pooled(urls.database_url(corpus.config))
    [[trace, tick]] = corpus.sql("select trace_id, tick from stepwise_examples where candidate_id is null limit 1")
    with db.connect() as conn:
        old, new = (find(conn, "stepwise", trace, [key]) for key in ((trace, tick), (trace, tick, -tick)))
    assert list(old) == [(trace, tick)]
    assert list(old.values()) == list(new.values())
    db.close()


SOURCES = ("drawn", "ran", "asserted", "evaluated")
"""Where labels of traces without trials come from."""


def test_drawn_and_grounded_labels_are_distinguished(corpus: Installation, tmp_path: Path) -> None:
    found = rows(corpus, tmp_path, "--format", "verifier")
    by_source = {name: [row for row in found if row["source"] == name] for name in SOURCES}
    assert sum(map(len, by_source.values())) == len(found)
    assert all(by_source.values())
    blocks = {
        (trace, index): (body, question, answer, probability, ran)
        for trace, index, body, question, answer, probability, ran in corpus.sql(
            "select trace_id, index, body, question, answer, probability, ran from blocks"
        )
    }
    for row in found:
        body, question, answer, probability, ran = blocks[row["trace_id"], row["index"]]
        assert row["context"].endswith(body + "\n")
        if row["source"] == "drawn":
            assert (row["question"], row["label"]) == (question, answer)
            assert row["predicted"] == pytest.approx(probability if answer else 1 - probability)
        elif row["source"] == "ran":
            assert row["label"] is ran
        elif row["source"] == "evaluated":
            assert row["type"] == "action"
            assert ran
    asserted = corpus.sql(
        "select count(*) from grounded_labels g join blocks b on b.executed_by = g.step_id "
        "where b.candidate_id is not null"
    )
    assert asserted == [(len(by_source["asserted"]),)]
    evaluated = corpus.sql(
        "select b.trace_id, e.title, e.value = 'true' from evaluations e join blocks b on b.trace_id = e.trace_id "
        "and b.tick = e.tick where b.type = 'action' and b.ran and b.candidate_id is not null and e.error is null "
        "and e.value in ('true', 'false')"
    )
    labels = [(row["trace_id"], row["question"], row["label"]) for row in by_source["evaluated"]]
    assert sorted(labels) == sorted(evaluated)


def test_texts_are_whole_traces_or_pieces_cut_between_blocks(corpus: Installation, tmp_path: Path) -> None:
    whole = {row["trace_id"]: row for row in rows(corpus, tmp_path, "--format", "text")}
    for trace, row in whole.items():
        assert row["text"] == corpus.cli("show", str(trace)).stdout
    for number, (option, most) in enumerate((("--context", 2000), ("--context-bytes", 6000))):
        folder = tmp_path / f"pieces-{number}"
        folder.mkdir()
        found = rows(corpus, folder, "--format", "text", option, str(most))
        assert len(found) > len(whole)
        for trace, pieces in itertools.groupby(found, lambda row: row["trace_id"]):
            texts = []
            for position, piece in enumerate(pieces):
                assert piece["piece"] == position
                assert piece["text"].startswith("#subagent ")
                size = piece["tokens"] if option == "--context" else len(piece["text"].encode())
                assert size <= most or piece["blocks"] == 1
                texts.append(piece["text"])
            assert "".join(texts) == whole[trace]["text"]
    counted = [row for row in found if row["tokens_counted"]]
    assert counted
    sizes = {
        (trace, index): count
        for trace, index, count in corpus.sql("select trace_id, index, array_length(token_ids, 1) from block_tokens")
    }
    for row in counted:
        indexes = range(row["first_block"], row["first_block"] + row["blocks"])
        assert row["tokens"] == sum(sizes[row["trace_id"], index] for index in indexes)


@pytest.mark.parametrize(("name", "options"), [("py", ()), ("json", ("--json",))])
def test_files_equal_the_output_of_show(
    corpus: Installation, tmp_path: Path, name: str, options: tuple[str, ...]
) -> None:
    exported(corpus, tmp_path / "out", "--format", name)
    traces = [trace for (trace,) in corpus.sql("select id from traces order by id")]
    files = sorted((tmp_path / "out" / "train").iterdir())
    assert [file.name for file in files] == [f"trace-{trace}.{name}" for trace in traces]
    for trace, file in zip(traces, files, strict=True):
        shown = corpus.cli("show", str(trace), *options).stdout
        assert json.loads(file.read_text()) == json.loads(shown) if options else file.read_text() == shown


def test_many_files_of_traces_are_in_subfolders(
    conn: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the Hugging Face hub a folder can't have 10,000 files."""
    monkeypatch.setattr(format, "MANY_FILES", 2)
    written = write.export(conn, write.Export(format=exports.find("sessions"), out=tmp_path / "out"))
    [traces] = conn.execute(Statement("select array_agg(id order by id) from traces")).one()
    assert written.files == [f"train/{trace // 1000}000/trace-{trace}.jsonl" for trace in traces]
    assert "path: train/**" in (tmp_path / "out" / "README.md").read_text()


# ------------------------------------------------------------------------------------------------ splits


def test_equal_rows_give_equal_bytes_and_the_same_splits(corpus: Installation, tmp_path: Path) -> None:
    arguments = ("--format", "dpo", "--split", "train=3,validation=1,test=1", "--shard-size", "20k")
    first = exported(corpus, tmp_path / "one", *arguments)
    exported(corpus, tmp_path / "two", *arguments)
    assert sums(tmp_path / "one") == sums(tmp_path / "two")
    assert first["rows"].keys() == {"train", "validation", "test"}
    assert 0 in first["rows"].values()  # this split is empty: it has no file, and the others can be opened
    splits = {
        row["trace_id"]: name for name, found in load(tmp_path / "one", tmp_path / "cache").items() for row in found
    }
    exported(corpus, tmp_path / "few", *arguments, "--where", "type = 'action'")
    for name, found in load(tmp_path / "few", tmp_path / "cache").items():
        assert {splits[row["trace_id"]] for row in found} <= {name}


def test_messages_count_towards_the_size_of_a_row_group(tmp_path: Path) -> None:
    messages = exports.find("messages")
    assert isinstance(messages, RowFormat)
    megabyte = dict.fromkeys(messages.schema.names) | {"messages": [{"role": "user", "content": "x" * 1_000_000}]}
    many = replace(messages, rows=lambda source, trace, keys: iter([megabyte] * 40))
    shards = Shards(tmp_path, "train", many, write.SHARD_BYTES)
    shards.add(Source(None), 1, iter(()))
    [path] = shards.close()
    assert pq.ParquetFile(path).num_row_groups == 3
    assert shards.text_bytes > 40_000_000


def test_another_export_to_the_same_folder_name_is_not_cached_as_the_first(
    corpus: Installation, tmp_path: Path
) -> None:
    for name in ("sft", "dpo"):
        exported(corpus, tmp_path / "out", "--format", name)
        [row, *_] = load(tmp_path / "out", tmp_path / "cache")["train"]
        assert list(row) == exports.find(name).schema.names  # type: ignore[attr-defined]
        shutil.rmtree(tmp_path / "out")


def test_a_trace_that_repeats_another_is_in_the_same_split(conn: Connection) -> None:
    shares = {"train": 0.5, "test": 0.5}
    ids = conn.execute(Statement("select id from traces order by id")).scalars()
    first = {trace: write.split_of(conn, trace, shares) for trace in ids}
    assert set(first.values()) == {"train", "test"}
    away = next(trace for trace in ids[1:] if first[trace] != first[ids[0]])
    conn.execute(Statement("update traces set retry_of = :root where id = :id"), {"root": ids[0], "id": away})
    assert write.split_of(conn, away, shares) == first[ids[0]]
    called = "retry_of = null, called_by = (select min(id) from steps where trace_id = :root)"  # by a delegation
    conn.execute(Statement(f"update traces set {called} where id = :id"), {"root": ids[0], "id": away})
    assert write.split_of(conn, away, shares) == first[ids[0]]


@pytest.mark.parametrize("text", ["", "train", "train=0", "train=-1", "train=x", "a=1,a=1", "a b=1", "train=nan"])
def test_invalid_splits_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--split"):
        write.read_splits(text)


def test_shares_of_splits_are_normalised(tmp_path: Path) -> None:
    assert write.read_splits("train=19, test=1") == {"train": 0.95, "test": 0.05}
    keys = [(trace, 7) for trace in range(20_000)]
    chosen = write.Selection(keys, 2, tmp_path)
    assert list(chosen) == keys
    assert list(tmp_path.iterdir()) == []  # the file has no name, so a crash leaves nothing
    chosen.close()


# ------------------------------------------------------------------------------------------------ bad input


def refused(corpus: Installation, out: Path, *arguments: str, code: int = 2) -> str:
    """The one line of the command's error. No folder is left."""
    done = corpus.cli("export", "--out", out, *arguments)
    assert done.returncode == code, done.stderr + done.stdout
    assert done.stderr.count("\n") == 1, done.stderr
    assert not out.exists()
    assert not out.with_name(out.name + ".part").exists()
    return done.stderr


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("reward >", "syntax error"),
        ("no_such_column > 1", "no_such_column"),
        ("(delete from blocks returning true)", "syntax error"),
        ("nextval('blocks_id_seq') > 0", "(read-only|permission denied)"),
        ("set_config('role', 'weavegen', false) = 'x'", "permission denied|denied"),
        ("true) union select null, null, null, null from blocks where (true", "not a condition"),
        ("(select count(*) from generate_series(1, 1e12)) > 0", "--seconds"),
        ("false", "nothing to export"),
    ],
)
def test_an_invalid_condition_is_refused(corpus: Installation, tmp_path: Path, where: str, said: str) -> None:
    before = corpus.sql("select count(*) from blocks")
    line = refused(corpus, tmp_path / "out", "--format", "sft", "--where", where, "--seconds", "1")
    assert re.search(said, line), line
    assert corpus.sql("select count(*) from blocks") == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--format", "pdf"), "choose one of text, sft"),
        ((), "--format"),
        (("--format", "sft", "--context", "100"), "--context does not apply to the format sft"),
        (("--format", "text", "--per-block", "2"), "--per-block does not apply"),
        (("--format", "sft", "--split", "train"), "--split"),
        (("--format", "sft", "--shard-size", "lots"), "--shard-size"),
    ],
)
def test_options_without_effect_are_refused(
    corpus: Installation, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    assert said in refused(corpus, tmp_path / "out", *arguments)


def test_a_comment_at_the_end_of_a_condition_has_no_effect(corpus: Installation, tmp_path: Path) -> None:
    said = exported(corpus, tmp_path / "out", "--format", "text", "--where", "ticks > 1 -- as said", "--limit", "2")
    assert said["rows"] == {"train": 2}


def test_an_existing_folder_is_not_changed(corpus: Installation, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine").touch()
    done = corpus.cli("export", "--format", "text", "--out", out)
    assert (done.returncode, "already exists" in done.stderr) == (2, True)
    assert [path.name for path in out.iterdir()] == ["mine"]
    part = tmp_path / "other.part"
    part.mkdir()
    (part / "mine").touch()
    done = corpus.cli("export", "--format", "text", "--out", tmp_path / "other")
    assert (done.returncode, "not made by an export" in done.stderr) == (2, True)
    assert [path.name for path in part.iterdir()] == ["mine"]


def test_a_dry_run_writes_nothing(corpus: Installation, tmp_path: Path) -> None:
    said = corpus.json("export", "--format", "dpo", "--dry-run", "--split", "train=0.6,test=0.4")
    done = exported(corpus, tmp_path / "out", "--format", "dpo", "--split", "train=0.6,test=0.4")
    assert (said["rows"], said["traces"]) == (done["rows"], done["traces"])


# -------------------------------------------------------------------------------------- complete or not at all


def test_a_full_disk_for_temporary_files_is_named() -> None:
    """SQLite keeps the hashes of texts in a temporary file."""
    with contextlib.closing(sqlite3.connect("")) as database:
        database.execute("pragma max_page_count = 2")
        with pytest.raises(sqlite3.OperationalError) as full:
            database.execute("create table texts as select zeroblob(100000)")
    assert resource_problem(full.value) == "TMPDIR: database or disk is full: free some space"


@pytest.mark.skipif(os.getuid() != 0, reason="only root mounts file systems")
def test_a_disk_that_becomes_full_during_the_export(corpus: Installation, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", small], capture_output=True, text=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr}")
    try:
        line = refused(corpus, small / "out", "--format", "py", code=1)
        assert "No space left on device" in line
        assert list(small.iterdir()) == []
    finally:
        subprocess.run(["umount", small], check=True)


def test_a_file_size_limit_is_reached(corpus: Installation, tmp_path: Path) -> None:
    command = [str(Path(sys.executable).parent / "weavegen"), "export", "--format", "sft", "--out", "out"]
    # The limit would truncate .pyc files too.
    done = subprocess.run(
        ["bash", "-c", 'ulimit -f 8; PYTHONDONTWRITEBYTECODE=1 exec "$@"', "bash", *command],
        env=corpus.environ, cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "File too large" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_interrupted_while_it_selects(corpus: Installation, tmp_path: Path) -> None:
    slow = "(select pg_sleep(600)::text) = ''"
    process = subprocess.Popen(
        [Path(sys.executable).parent / "weavegen", "export", "-f", "sft", "-o", "out", "--where", slow],
        env=corpus.environ, cwd=tmp_path, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    asking = "select count(*) from pg_stat_activity where query like '%pg_sleep(600)%' and usename = 'weavegen_reader'"
    while corpus.sql(f"{asking} and state = 'active'") == [(0,)]:
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=60)[1]
    assert (process.returncode, said) == (130, "weavegen: stopped\n")
    assert list(tmp_path.iterdir()) == []


def wanted(out: Path) -> write.Export:
    return write.Export(format=exports.find("sft"), out=out)


def test_interrupted_while_it_writes(conn: Connection, tmp_path: Path) -> None:
    def interrupt(done: int, count: int) -> None:
        if done == count // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write.export(conn, wanted(tmp_path / "out"), progress=interrupt)
    assert list(tmp_path.iterdir()) == []


def test_a_database_that_goes_away_in_the_middle(conn: Connection, corpus: Installation, tmp_path: Path) -> None:
    def cut(done: int, count: int) -> None:
        if done == 1:
            corpus.sql(
                "select pg_terminate_backend(pid) from pg_stat_activity where application_name = :name", name=TESTED
            )

    with pytest.raises(WeavegenError, match="the database failed") as caught:
        write.export(conn, wanted(tmp_path / "out"), progress=cut)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["sft", "tree", "json", "atif"])
@pytest.mark.parametrize("splits", [{"train": 1.0}, {"train": 0.5, "test": 0.5}])
def test_a_trace_that_is_deleted_meanwhile_is_left_out(
    conn: Connection, tmp_path: Path, name: str, splits: dict[str, float]
) -> None:
    order = write.Export(format=exports.find(name), out=tmp_path / "out", splits=splits)
    width = len(order.format.key)
    with contextlib.closing(write.selected(conn, order)) as found:
        there = list(found)
    gone = [(2**40, *range(width - 1)), (2**40, *range(1, width))] if width > 1 else [(2**40,)]
    with contextlib.closing(write.Selection([*there, *gone], width)) as keys:
        written = write.export(conn, order, keys=keys)
    assert written.left_out["the trace is gone"] == len(gone)
    assert sum(written.traces.values()) == len({trace for trace, *_ in there})


def test_the_rest_of_a_killed_export_is_not_taken_for_a_complete_one(conn: Connection, tmp_path: Path) -> None:
    part = tmp_path / "out.part"
    (part / "data").mkdir(parents=True)
    (part / MARK).touch()
    (part / "data" / "train-00000.draft").write_bytes(b"half of it")
    write.export(conn, wanted(tmp_path / "out"))
    assert not part.exists()
    names = sorted(str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*"))
    assert names == ["README.md", "data", "data/train-00000-of-00001.parquet"]


def test_two_exports_can_not_write_to_one_folder(conn: Connection, tmp_path: Path) -> None:
    with new_folder(tmp_path / "out"), pytest.raises(UsageError, match="another export"):
        write.export(conn, wanted(tmp_path / "out"))
    assert (tmp_path / "out").is_dir()
    shutil.rmtree(tmp_path / "out")
