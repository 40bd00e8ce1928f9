"""What the views say about texts agrees with their outcomes: failures, doubles, drafts, runs that were started over."""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tokenizers import Tokenizer

from tests.support.nano_model import make_tokenizer
from tests.support.sample_corpus import filled
from weavegen import exports, sql
from weavegen.config import Config
from weavegen.database import Connection, Database, Statement
from weavegen.errors import UsageError
from weavegen.evaluator.rubrics import parse
from weavegen.exports import labelled
from weavegen.exports.completions import find, for_reader
from weavegen.exports.format import RowFormat, Source
from weavegen.exports.read_prompts import ModelPrompt, PromptReader
from weavegen.exports.releases.facts import units
from weavegen.exports.student import Student, for_student
from weavegen.kernel.steps import Hit, Prompt
from weavegen.kernel.template import PLAIN, Template
from weavegen.store import campaigns
from weavegen.trace.blocks import BlockType
from weavegen.training.plan import IGNORED

THINKS = Template(
    first_user="<u>", user_open="<u>", user_close="</u>", assistant_open="<a><think>", reply_open="<a>",
    assistant_close="</a>",
)  # fmt: skip
"""A template that shows earlier replies in another way than the one to be written."""


@pytest.fixture(scope="module")
def corpus(config: Config, template: str) -> Iterator[Database]:
    with filled(config, template) as db:
        yield db


@pytest.fixture
def conn(corpus: Database) -> Iterator[Connection]:
    """The sample corpus; what a test changes is rolled back."""
    with corpus.connect() as connection:
        yield connection
        connection.rollback()


def rows(conn: Connection, query: str, **values: Any) -> list[Any]:
    return conn.execute(Statement(query), values).all()


def change(conn: Connection, statement: str, **values: Any) -> None:
    conn.execute(Statement(statement), values)


def one_row(conn: Connection, query: str, **values: Any) -> Any:
    return rows(conn, f"{query} limit 1", **values)[0]


def round_of_an_action(conn: Connection) -> tuple[int, list[Any]]:
    """An action that ran, and the candidates of its round, the action's first: block_id, id, trace_id, index, text."""
    query = """
        select v.* from candidate_values v where v.type = 'action' and v.value is not null and v.step_id in (
          select o.step_id from candidate_values o where o.block_id is not null and o.ran) order by step_id, block_id
    """
    found = rows(conn, query)
    same = [row for row in found if row.step_id == found[0].step_id]
    assert len(same) > 2
    return same[0].block_id, same


def try_out(conn: Connection, candidate: Any, ran: bool, values: list[Any], own: list[Any] | None = None) -> None:
    """Record that a candidate was tried, with the values of the task's evaluations and of its own; None: it raised."""
    evaluations = [
        {"scope": scope, "title": "Is it so?", "value": value, "error": None if value is not None else "it raised"}
        for scope, found in (("task", values), ("tick", own or []))
        for value in found
    ]
    change(
        conn,
        "insert into trials (step_id, candidate_id, trace_id, ran, assertions, evaluations, views, output, seconds) "
        "values (:step, :id, :trace, :ran, '[]', cast(:evaluations as jsonb), '[]', '', 0)",
        step=candidate.step_id, id=candidate.candidate_id, trace=candidate.trace_id, ran=ran, evaluations=evaluations,
    )  # fmt: skip


# ------------------------------------------------------------------------------------------- values and failures


def test_an_evaluation_that_raised_counts_as_not_true(conn: Connection) -> None:
    _, (_, one, two, *_) = round_of_an_action(conn)
    try_out(conn, one, True, [True, None])
    try_out(conn, two, True, [True, False])
    query = "select achieved from candidate_values where candidate_id = :id"
    assert [float(rows(conn, query, id=it.candidate_id)[0][0]) for it in (one, two)] == [0.5, 0.5]


def test_an_evaluation_that_an_action_adds_does_not_count_for_it(conn: Connection) -> None:
    _, (_, one, two, *_) = round_of_an_action(conn)
    try_out(conn, one, True, [True, False], own=[True, True])
    try_out(conn, two, True, [], own=[True])
    query = "select achieved from candidate_values where candidate_id = :id"
    assert float(rows(conn, query, id=one.candidate_id)[0][0]) == 0.5
    assert rows(conn, query, id=two.candidate_id) == [(None,)]


def test_an_action_that_failed_after_its_subagent_returned_is_not_imitated(conn: Connection) -> None:
    block, (own, *_) = round_of_an_action(conn)
    assert rows(conn, "select from sft_examples where block_id = :block", block=block)
    change(conn, "update blocks set ran = null, preference = -0.5 where id = :block", block=block)
    assert not rows(conn, "select from sft_examples where block_id = :block", block=block)
    known = {"id": own.candidate_id}
    assert rows(conn, "select ran, failed from candidate_values where candidate_id = :id", **known) == [(False, True)]
    assert rows(conn, "select label, because from kto_examples where candidate_id = :id", **known) == [
        (False, "failed")
    ]
    assert not rows(conn, "select from preference_pairs where kind = 'candidates' and chosen_id = :id", **known)
    pairs = rows(
        conn, "select rejected_ran from preference_pairs where kind = 'candidates' and rejected_id = :id", **known
    )
    assert pairs
    assert {pair.rejected_ran for pair in pairs} == {False}


def test_reasoning_that_loses_is_still_imitated(conn: Connection) -> None:
    [block] = one_row(conn, "select block_id from sft_examples where type = 'orientation'")
    change(conn, "update blocks set preference = -0.5 where id = :block", block=block)
    assert rows(conn, "select from sft_examples where block_id = :block", block=block)


def test_equal_texts_of_one_block_have_one_label(conn: Connection) -> None:
    """The double of a text that failed was never executed: its value would call it good."""
    block, (own, double, *_) = round_of_an_action(conn)
    change(conn, "update blocks set ran = false, preference = -0.5 where id = :block", block=block)
    change(conn, "update candidates set text = :text where id = :id", text=own.text, id=double.candidate_id)
    change(conn, "update penalties set compiles = true, syntax = 0 where candidate_id = :id", id=double.candidate_id)
    change(conn, "update scores set score = 5 where candidate_id = :id", id=double.candidate_id)
    query = "select candidate_id, label from kto_examples where trace_id = :trace and index = :index and text = :text"
    found = rows(conn, query, trace=own.trace_id, index=own.index, text=own.text)
    assert found == [(own.candidate_id, False)]


def test_candidates_that_read_different_drafts_are_not_compared(conn: Connection) -> None:
    block, (own, *_) = round_of_an_action(conn)
    same = "select v.step_id, v.candidate_id from candidate_values v where v.trace_id = :trace and v.index = :index"
    found = rows(conn, same, trace=own.trace_id, index=own.index)
    place = {"trace": own.trace_id, "index": own.index}
    [key] = [(own.trace_id, own.index, block)]
    whole = find(conn, "grpo", own.trace_id, [key])[key]
    other = next((row.step_id for row in found if row.step_id != own.step_id), None)
    if other is None:  # a round of its own for half of them
        [[other]] = rows(
            conn,
            "insert into steps (trace_id, tick, run, ordinal, kind, label, request, queue) "
            "select trace_id, tick, run, ordinal + 100000, kind, label, request, queue from steps where id = :id "
            "returning id",
            id=own.step_id,
        )
        later = [row.candidate_id for row in found if row.candidate_id != own.candidate_id][::2]
        change(conn, "update candidates set step_id = :step where id = any(:ids)", step=other, ids=later)
        change(
            conn,
            "insert into prompts (step_id, trace_id, server, first_block) "
            "select :step, trace_id, server, first_block from prompts where step_id = :old",
            step=other, old=own.step_id,
        )  # fmt: skip
    draft = {"prompt": {"draft": "a draft"}}
    change(conn, "update steps set request = request || cast(:draft as jsonb) where id = :id", draft=draft, id=other)
    step_of = {row.candidate_id: row.step_id == other for row in rows(conn, same, **place)}
    assert set(step_of.values()) == {False, True}
    pairs = rows(
        conn,
        "select * from preference_pairs where kind = 'candidates' and trace_id = :trace and index = :index",
        **place,
    )
    assert pairs
    assert all(step_of[pair.chosen_id] == step_of[pair.rejected_id] == (pair.step_id == other) for pair in pairs)
    fewer = find(conn, "grpo", own.trace_id, [key])[key]
    assert len(fewer["texts"]) == sum(not drafted for drafted in step_of.values()) < len(whole["texts"])
    [[samples]] = rows(conn, "select samples from grpo_prompts where block_id = :block", block=block)
    assert samples <= len(fewer["texts"])


# ------------------------------------------------------------------------------------------- success


def succeeded(conn: Connection, trace: int) -> bool | None:
    query = f"select {sql.text('store/trace_success')} from traces t where t.id = :trace"
    [[success]] = rows(conn, query, trace=trace)
    return None if success is None else bool(success)


def evaluate(conn: Connection, trace: int, tick: int, run: int, value: bool) -> None:
    """Record an evaluation of the task in a run of a tick."""
    [[step]] = rows(
        conn,
        "insert into steps (trace_id, tick, run, ordinal, kind, label, status, request, queue) "
        "values (:trace, :tick, :run, 100000, 'execute', '', 'done', '{}', 'execute') returning id",
        trace=trace, tick=tick, run=run,
    )  # fmt: skip
    change(
        conn,
        "insert into evaluations (trace_id, step_id, tick, position, scope, title, value) "
        "values (:trace, :step, :tick, 0, 'task', 'Was it started over?', cast(:value as jsonb))",
        trace=trace, step=step, tick=tick, value=value,
    )  # fmt: skip


@pytest.fixture
def returned(conn: Connection) -> tuple[int, int]:
    """A trace that returned after its last tick, the only one in which its task was fulfilled: trace, tick."""
    [trace] = one_row(conn, "select id from traces where status = 'ended' and fork_of is null order by id")
    [[tick]] = rows(conn, "select max(number) from ticks where trace_id = :trace and caller is null", trace=trace)
    change(conn, "delete from evaluations where trace_id = :trace", trace=trace)
    change(
        conn, "update traces set ended_because = 'returned', ticks = :tick where id = :trace", trace=trace, tick=tick
    )
    change(conn, "update ticks set run = 1 where trace_id = :trace and number = :tick", trace=trace, tick=tick)
    evaluate(conn, trace, tick, 1, True)
    assert succeeded(conn, trace)
    return trace, tick


def test_success_is_that_of_the_last_tick_of_main(conn: Connection, returned: tuple[int, int]) -> None:
    trace, tick = returned
    change(
        conn,
        "insert into ticks (trace_id, number, subagent, caller, first_block, clock, deadline) "
        "select trace_id, number + 1, 'helper', number, first_block, clock, deadline from ticks "
        "where trace_id = :trace and number = :tick",
        trace=trace, tick=tick,
    )  # fmt: skip
    change(conn, "update traces set ticks = ticks + 1 where id = :trace", trace=trace)
    evaluate(conn, trace, tick + 1, 0, False)
    assert succeeded(conn, trace)


def test_an_evaluation_that_returned_none_is_not_true(conn: Connection, returned: tuple[int, int]) -> None:
    trace, _ = returned
    change(
        conn,
        "insert into evaluations (trace_id, step_id, tick, position, scope, title) "
        "select trace_id, step_id, tick, 1, scope, 'What does it return?' from evaluations where trace_id = :trace",
        trace=trace,
    )
    assert succeeded(conn, trace) is False


def test_the_success_of_a_harbor_task_is_that_of_its_rewards(conn: Connection, returned: tuple[int, int]) -> None:
    trace, _ = returned
    change(conn, "update evaluations set value = '1.0' where trace_id = :trace", trace=trace)
    assert succeeded(conn, trace) is False
    task = (
        "with task as (insert into harbor_tasks (sha256, name, task, metadata, files) values ('', '', '{}', '{}', '') "
        "returning id) update traces set harbor_task_id = task.id from task where traces.id = :trace"
    )
    change(conn, task, trace=trace)
    for success in (True, False, None):  # also of one that has spent its ticks
        change(
            conn,
            "update traces set ended_because = 'ticks', returned = cast(:verified as jsonb) where id = :trace",
            verified={"success": success}, trace=trace,
        )  # fmt: skip
        assert succeeded(conn, trace) is success
    change(conn, "update traces set status = 'failed', ended_because = null where id = :trace", trace=trace)
    assert succeeded(conn, trace) is None
    change(conn, "update traces set returned = null where id = :trace", trace=trace)
    assert succeeded(conn, trace) is False


def test_runs_that_were_started_over_do_not_count(conn: Connection, returned: tuple[int, int]) -> None:
    trace, tick = returned
    change(conn, "update ticks set run = 0 where trace_id = :trace and number = :tick", trace=trace, tick=tick)
    change(conn, "update steps set run = 0 where trace_id = :trace and ordinal = 100000", trace=trace)
    labels = "select question, label from verifier_labels where source = 'evaluated' and trace_id = :trace"
    before = rows(conn, labels, trace=trace)
    assert before
    change(conn, "update ticks set run = 1 where trace_id = :trace and number = :tick", trace=trace, tick=tick)
    change(
        conn, "update steps set run = 1 where trace_id = :trace and tick = :tick and run = 0", trace=trace, tick=tick
    )
    evaluate(conn, trace, tick, 0, False)
    assert succeeded(conn, trace)
    assert rows(conn, labels, trace=trace) == before


def test_a_trace_that_was_tried_again_is_measured_once(conn: Connection) -> None:
    ends = "select job_id, min(id) as first, max(id) as last from traces where status = 'ended' group by 1"
    found = one_row(conn, f"{ends} having count(*) > 1")
    before = {row.trace for row in sql.run(conn, "evaluator/traces", job=found.job_id)}
    change(conn, "update traces set retry_of = :first where id = :last", first=found.first, last=found.last)
    assert {row.trace for row in sql.run(conn, "evaluator/traces", job=found.job_id)} == before - {found.first}


# ------------------------------------------------------------------------------------------- texts


def test_near_duplicates_of_a_verifier_are_compared_by_their_own_texts(conn: Connection) -> None:
    _, (_, one, two, *_) = round_of_an_action(conn)
    for candidate in (one, two):
        try_out(conn, candidate, True, [])
    key = ("trace_id", "index", "block_id", "source_id", "label_id")
    found = rows(conn, f"select {', '.join(key)}, body from verifier_labels where source = 'tried' order by label_id")
    compared = list(units(conn, "verifier_labels", key, [(one.trace_id, [tuple(row[:-1]) for row in found])]))
    assert [unit.text for unit in compared] == [row.body for row in found]
    assert len({unit.text for unit in compared}) == 2


def test_what_the_model_imagined_is_exported_as_it_wrote_it(conn: Connection) -> None:
    block, (own, *_) = round_of_an_action(conn)
    change(conn, "update blocks set type = 'outcome', body = 'It is so.' where id = :block", block=block)
    wrote = {"id": own.candidate_id, "text": "# It is so.\n"}
    change(conn, "update candidates set type = 'outcome', text = :text where id = :id", **wrote)
    change(conn, "update penalties set rewritten = null where candidate_id = :id", id=own.candidate_id)
    change(
        conn,
        "insert into annotations (trace_id, candidate_id, author, verdict, labels, note) "
        "values (:trace, :id, 'anna', 'good', '{}', '')",
        trace=own.trace_id, id=own.candidate_id,
    )  # fmt: skip
    for view in ("sft_examples", "verifier_labels", "annotated_candidates"):
        found = rows(conn, f"select distinct body from {view} where block_id = :block", block=block)
        assert found == [("# It is so.",)], view
    assert asked_about(conn, block, own).body == "# It is so.\n"


def asked_about(conn: Connection, block: int, candidate: Any) -> Any:
    """A row of campaign_items.sql for a block, in a new campaign."""
    [[batch]] = rows(
        conn,
        """
        with campaign as (
          insert into campaigns (name, over, condition, rubric, rubric_version, version)
          select count(*)::text, 'blocks', 'true', '', '', '' from campaigns returning id
        ), batch as (
          insert into campaign_batches (campaign_id, trace_id, number) select id, :trace, 0 from campaign returning id
        )
        insert into campaign_items (batch_id, candidate_id, block_id)
        select id, :candidate, :block from batch returning batch_id
        """,
        trace=candidate.trace_id, candidate=candidate.candidate_id, block=block,
    )  # fmt: skip
    [item] = sql.run(conn, "store/campaign_items", batch=batch)
    return item


def test_a_prompt_with_a_retrieved_block_that_is_gone_is_unknown(conn: Connection) -> None:
    block, (own, *_) = round_of_an_action(conn)
    [[there]] = rows(conn, "select id from blocks where trace_id <> :trace limit 1", trace=own.trace_id)
    change(conn, "update prompts set first_block = 2 where step_id = :step", step=own.step_id)
    ask = "update steps set request = jsonb_set(request, '{prompt}', cast(:prompt as jsonb)) where id = :step"
    for ids, lost in (([there], None), ([there, -1], "a block that the model had retrieved is gone")):
        hits = tuple(Hit(id=id, score=1.0) for id in ids)
        prompt = Prompt(type=BlockType.ACTION, window=(2, own.index), recalled=hits)
        change(conn, ask, prompt=msgspec.to_builtins(prompt), step=own.step_id)
        reader = PromptReader(conn, own.trace_id)
        reader.load([own.step_id])
        assert (reader.prompt(own.step_id) is None) is (lost is not None)
        assert asked_about(conn, block, own).lost == lost


def test_no_campaign_asks_about_runs_that_were_started_over(conn: Connection) -> None:
    block, found = round_of_an_action(conn)
    ids = [candidate.candidate_id for candidate in found]

    def asked() -> int:
        rubric = parse('[questions]\naction = ["Is it good?"]')
        return int(campaigns.preview(conn, rubric, "candidates", ids).asked)

    assert (asked(), asked_about(conn, block, found[0]).lost) == (len(ids), None)
    restart = "update ticks k set run = k.run + 1 from steps s where s.id = :step and k.trace_id = s.trace_id"
    change(conn, f"{restart} and k.number = s.tick", step=found[0].step_id)
    assert (asked(), asked_about(conn, block, found[0]).lost) == (0, "its tick was started over")


def test_a_tried_text_stands_in_the_place_of_one_that_is_no_python(conn: Connection) -> None:
    block, (own, other, *_) = round_of_an_action(conn)
    [[rendered, body, tick]] = rows(conn, "select rendered, body, tick from blocks where id = :block", block=block)
    commented = "\n".join(f"# {line}" for line in body.split("\n"))
    rendered = rendered.replace("\n", "\n#invalid_syntax it is shown commented out\n", 5).replace(body, commented)
    rendered = rendered.replace("#invalid_syntax it is shown commented out\n", "", 4)
    assert commented in rendered
    change(
        conn,
        "update blocks set compiles = false, ran = null, rendered = :text where id = :block",
        block=block,
        text=rendered,
    )
    try_out(conn, other, True, [])
    key = (own.trace_id, tick, other.candidate_id)
    last = find(conn, "stepwise", own.trace_id, [key])[key]["blocks"][-1]
    assert (last["index"], last["label"]) == (own.index, True)
    assert other.text.strip("\n") in last["rendered"]
    assert "#invalid_syntax" not in last["rendered"]
    assert body.split("\n")[-1] not in last["rendered"].split("\n")[-6:] or body.split("\n")[-1] in other.text
    assert commented.split("\n")[0] not in last["rendered"]


PROMPT = ModelPrompt("read ", "", True, None, (0, 1), 0, {}, "<end>")


@pytest.mark.parametrize(
    ("reason", "rewritten", "completion"),
    [("stop", False, "said<end>"), ("length", False, "said"), ("length", True, "said<end>")],
)
def test_a_text_that_was_cut_off_has_no_end(reason: str, rewritten: bool, completion: str) -> None:
    record = {"body": "said", "finish_reason": reason, "was_rewritten": rewritten}
    assert labelled.sft(record, PROMPT) == {"prompt": "read ", "completion": completion}


@pytest.fixture
def student() -> Student:
    one = Student.__new__(Student)
    one._tokenizer, one.template = Tokenizer.from_str(make_tokenizer().to_str()), THINKS
    return one


def said(type: BlockType, text: str, first: int | None = None, finish_reason: str | None = None) -> SimpleNamespace:
    return SimpleNamespace(type=type, text=text, first=first, finish_reason=finish_reason)


def test_a_student_continues_what_it_reads_before_it_writes_and_ends_what_was_ended(student: Student) -> None:
    messages = [
        said(BlockType.USER, "a"), said(BlockType.ASSISTANT, "b", 0, "length"), said(BlockType.USER, "c"),
        said(BlockType.ASSISTANT, "d</think>e", 0, "stop"),
    ]  # fmt: skip
    row = student.conversation(messages)
    decode = student._tokenizer.decode
    whole = "<u>a</u><a><think>b</a><u>c</u><a><think>d</think>e</a>"
    assert decode(row["input_ids"], skip_special_tokens=False) == whole
    learned = [label for label in row["labels"] if label != IGNORED]
    assert decode(learned, skip_special_tokens=False) == "bd</think>e</a>"


@pytest.mark.parametrize("opening", ["<a>", "<a><think>\n"])
@pytest.mark.parametrize("thought", ["plan\n</think>\n\n", "<think>\nplan\n</think>\n\n", ""])
def test_thoughts_of_another_template_begin_and_end_once(student: Student, opening: str, thought: str) -> None:
    """Whether the writer's template began the thought, or the student's does, or both, or none."""
    student.template = msgspec.structs.replace(THINKS, assistant_open=opening)
    messages = [said(BlockType.USER, "a"), said(BlockType.ASSISTANT, f"{thought}yes", 0, "stop")]
    row = student.conversation(messages)
    read = student._tokenizer.decode(row["input_ids"], skip_special_tokens=False)
    begun = opening != "<a>"
    whole = "<think>\nplan\n</think>\n\nyes" if thought else "<think>\n\n</think>\n\nyes" if begun else "yes"
    assert read == f"<u>a</u><a>{whole}</a>"
    learned = [label for label in row["labels"] if label != IGNORED]
    completion = f"{whole.removeprefix('<think>' + chr(10)) if begun else whole}</a>"
    assert student._tokenizer.decode(learned, skip_special_tokens=False) == completion
    prompt = dataclasses.replace(PROMPT, text=f"<u>a</u>{opening}", end="</a>", messages=1)
    record = {"body": f"{thought}yes", "finish_reason": "stop", "was_rewritten": False}
    assert labelled.sft(for_reader(record, prompt, student.template), prompt)["completion"] == completion


def test_what_was_cut_off_without_tags_may_be_a_thought(student: Student) -> None:
    record = {"body": "plan", "text": "plan", "finish_reason": "length", "was_rewritten": False}
    prompt = dataclasses.replace(PROMPT, text="<a><think>", messages=1)
    assert for_reader(record, prompt, THINKS) == record


@pytest.mark.parametrize("name", ["sft", "dpo", "kto", "verifier"])
def test_what_another_model_wrote_has_no_special_tokens_of_the_student(
    conn: Connection, student: Student, name: str
) -> None:
    student._tokenizer.add_special_tokens(["<u>", "</u>", "</a>"])
    special = {student._tokenizer.token_to_id(token) for token in ("<u>", "</u>", "</a>")}
    format = for_student(exports.find(name), student)
    assert isinstance(format, RowFormat)
    key = one_row(conn, f"select {', '.join(format.key)} from {format.view} where type = 'action'")
    prompt = Prompt(type=BlockType.ACTION, window=(2, 3))
    for statement, values in (
        ("update blocks set body = body || :forged where trace_id = :trace", {"forged": "\n# </a><u>"}),
        ("update candidates set text = text || :forged where trace_id = :trace", {"forged": "\n# </a><u>"}),
        ("update prompts set first_block = 2 where trace_id = :trace", {}),
        (
            "update steps set request = jsonb_set(request, '{prompt}', cast(:prompt as jsonb)) where trace_id = :trace",
            {"prompt": msgspec.to_builtins(prompt)},
        ),
    ):
        change(conn, statement, trace=key[0], **values)
    [row] = format.rows(Source(conn), key[0], iter([tuple(key)]))
    texts = [row[column] for column in ("completion", "chosen", "rejected", "context") if column in row]
    assert all("\n# < /a>< u>" in text for text in texts)
    for text in texts:
        assert not special & set(student._tokenizer.encode(text, add_special_tokens=False).ids)
    assert not special & set(row.get("labels", ()))


def save(folder: Path, config: dict[str, Any]) -> Student:
    """A student in a folder, as transformers saves it."""
    make_tokenizer().save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return Student(folder)


def test_a_base_model_reads_without_a_template(tmp_path: Path) -> None:
    assert save(tmp_path, {"bos_token": "<s>"}).template is PLAIN
    with pytest.raises(UsageError, match="has no chat template"):
        save(tmp_path, {"chat_template": [{"name": "rag", "template": "x"}]})


def test_the_date_in_a_students_prompts_is_not_that_of_the_export(tmp_path: Path) -> None:
    source = "{{ strftime_now('%d %b %Y %f') }}{% for m in messages %}<{{ m.role }}>{{ m.content }}<end>{% endfor %}"
    template = save(tmp_path, {"chat_template": source}).template
    assert template.first_user == "26 Jul 2024 000000<user>"
    assert Student(tmp_path).template == template


def test_a_reply_is_read_again_as_the_tokens_that_were_sampled(conn: Connection) -> None:
    """After the same opening as when they were sampled; without recorded tokens, as the template shows it."""
    _, (own, *_) = round_of_an_action(conn)
    change(
        conn,
        "update blocks set type = case index when :index then 'assistant' else 'user' end "
        "where trace_id = :trace and (index = :index or index = 0)",
        trace=own.trace_id, index=own.index,
    )  # fmt: skip
    change(conn, "update candidates set text = 'said' where id = :id", id=own.candidate_id)
    prompt = Prompt(type=BlockType.ASSISTANT, window=(0, own.index + 1))
    change(
        conn,
        "update steps set request = jsonb_set(request, '{prompt}', cast(:prompt as jsonb)) where id = :id",
        prompt=msgspec.to_builtins(prompt), id=own.step_id,
    )  # fmt: skip
    for ids, said in ((None, "<a>said"), ([1, 2], "<a><think>\n</think>\n\nsaid")):
        query = "update candidates set token_ids = cast(:ids as integer[]) where id = :id"
        change(conn, query, id=own.candidate_id, ids=ids)
        reader = PromptReader(conn, own.trace_id, THINKS)
        reader.load([own.step_id])
        read = reader.prompt(own.step_id)
        assert read is not None
        assert read.text.endswith(f"{said}</a><a><think>"), json.dumps(read.text)
