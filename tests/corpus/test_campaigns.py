"""Campaigns in PostgreSQL: batches are claimed and given back, answers stored once, failed items tried again."""

from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.support.worker import Worker, enqueue, scalar
from weavegen import sql
from weavegen.database import Database, Statement
from weavegen.errors import StepLost, UsageError
from weavegen.evaluator.calibration import Fit
from weavegen.evaluator.rubrics import parse
from weavegen.kernel import prompts
from weavegen.kernel.rubric import Question
from weavegen.kernel.steps import YesNo
from weavegen.store import campaigns
from weavegen.store.campaigns import AnsweredItem
from weavegen.store.states import CampaignState
from weavegen.trace.blocks import BlockType

RUBRIC = parse('[questions]\nall = ["Is it good?"]\naction = ["Does this block run without errors?"]')
YES = YesNo(yes=0.75, no=0.25)


@pytest.fixture
def corpus(db: Database) -> Database:
    """A few traces that have ended."""
    enqueue(db, 3, ticks=2)
    worker = Worker(db)
    worker.run(worker.engine.start_queued())
    return db


def ids(db: Database, table: str = "blocks") -> list[int]:
    with db.connect() as conn:
        return list(conn.execute(Statement(f"select id from {table} order by id")).scalars())


def create(db: Database, name: str = "a", over: str = "blocks", rubric: Any = RUBRIC) -> int:
    with db.begin() as conn:
        of = ids(db, over)
        return campaigns.create(conn, name, rubric, over, of, condition="true", model=None, version="0")


def send(db: Database, in_flight: int = 1000) -> list[int]:
    with db.begin() as conn:
        return [id for id, _ in campaigns.batches_to_send(conn, 60, in_flight)]


def claim(db: Database, batch: int) -> Any:
    with db.begin() as conn:
        return campaigns.claim(conn, batch, "test", 60)


def finish(db: Database, held: Any, failures: dict[int, str] | None = None, answer: YesNo = YES) -> None:
    """Answer all items that do not fail."""
    failures = failures or {}
    with db.begin() as conn:
        answered = [
            AnsweredItem(item.id, "m", "http://s", 7, tuple((q, answer) for q in RUBRIC.about(item.type)))
            for item in sql.run(conn, "store/campaign_items", batch=held.id)
            if item.id not in failures
        ]
        campaigns.finish(conn, held, answered, failures, 0.5)


def campaign_row(db: Database, name: str = "a") -> Any:
    with db.connect() as conn:
        return campaigns.rows(conn, name)[0]


def test_blocks_of_the_model_are_asked_about_in_batches_of_one_trace(corpus: Database) -> None:
    with corpus.connect() as conn:
        counts = campaigns.preview(conn, RUBRIC, "blocks", ids(corpus))
    create(corpus)
    written = scalar(corpus, "select count(*) from blocks where candidate_id is not null and type <> 'option'")
    assert (counts.asked, counts.traces, counts.found) == (written, 3, len(ids(corpus)))
    assert counts.questions == written + scalar(
        corpus, "select count(*) from blocks where candidate_id is not null and type = 'action'"
    )
    assert scalar(corpus, "select count(*) from campaign_items") == written
    assert scalar(corpus, "select count(distinct trace_id) = count(*) from campaign_batches")
    create(corpus, "b", "candidates")
    sampled = scalar(corpus, "select count(*) from candidates where type not in ('bm25-query', 'next-type')")
    assert campaign_row(corpus, "b").items == sampled
    largest = "select max(n) from (select count(*) n from campaign_items group by batch_id) x"
    assert scalar(corpus, largest) <= campaigns.BATCH_SIZE
    mixed = """
        select count(*) from campaign_items i join campaign_batches b on b.id = i.batch_id
        join candidates c on c.id = i.candidate_id where c.trace_id <> b.trace_id
    """
    assert scalar(corpus, mixed) == 0


def test_a_campaign_from_beginning_to_end(corpus: Database) -> None:
    create(corpus)
    sent = send(corpus)
    assert len(sent) == 3
    assert send(corpus) == []
    for batch in sent:
        held = claim(corpus, batch)
        assert held is not None
        finish(corpus, held)
    row = campaign_row(corpus)
    assert (row.state, row.done, row.failed) == ("done", row.items, 0)
    assert row.finished_at is not None
    stored = "select count(*), min(yes), min(score) from answers where model = 'm' and truth is null"
    with corpus.connect() as conn:
        number, yes, score = conn.execute(Statement(stored)).one()
    assert (number, yes) == (row.items, 0.75)
    assert score == pytest.approx(1.0986, abs=1e-4)
    assert scalar(corpus, "select count(*) from answers where truth = 'ran'") == row.answers - number > 0
    assert scalar(corpus, "select min(context_tokens) from campaign_items") == 7


def test_a_batch_that_is_delivered_twice_is_done_once(corpus: Database) -> None:
    create(corpus)
    batch = send(corpus)[0]
    held = claim(corpus, batch)
    assert held is not None
    assert claim(corpus, batch) is None
    finish(corpus, held)
    assert claim(corpus, batch) is None
    with pytest.raises(StepLost):
        finish(corpus, held)


def test_an_expired_lease_gives_the_batch_to_another_worker(corpus: Database) -> None:
    create(corpus)
    batch = send(corpus)[0]
    held = claim(corpus, batch)
    assert held is not None
    with corpus.begin() as conn:
        conn.execute(
            Statement("update campaign_batches set lease_until = now() - interval '1 s' where lease_until > now()")
        )
        campaigns.LEASES.renew(conn, [(held.id, held.claims)], 60)
    assert batch not in send(corpus)
    with corpus.begin() as conn:
        conn.execute(
            Statement("update campaign_batches set lease_until = now() - interval '1 s' where status = 'running'")
        )
    assert batch in send(corpus)
    other = claim(corpus, batch)
    assert other is not None
    assert other.claims == 2
    finish(corpus, other)
    with pytest.raises(StepLost):
        finish(corpus, held, answer=YesNo(yes=0.0, no=1.0))
    assert scalar(corpus, "select min(yes) from answers") == 0.75


def test_a_lost_message_is_sent_again_also_after_the_clock_was_set_back(corpus: Database) -> None:
    create(corpus)
    sent = send(corpus)
    for change in ("send_after = now()", "send_after = now() + interval '1 day'"):
        with corpus.begin() as conn:
            conn.execute(Statement(f"update campaign_batches set {change}"))
        assert send(corpus) == sent
    held = claim(corpus, sent[0])
    assert held is not None
    with corpus.begin() as conn:
        conn.execute(Statement("update campaign_batches set lease_until = now() + interval '1 day'"))
    assert sent[0] in send(corpus)


def test_a_batch_that_was_given_back_waits_and_then_continues(corpus: Database) -> None:
    create(corpus)
    batch = send(corpus)[0]
    held = claim(corpus, batch)
    assert held is not None
    with corpus.begin() as conn:
        campaigns.LEASES.release(conn, held, "busy", 30, counts=False)
    assert send(corpus) == []
    with corpus.begin() as conn:
        conn.execute(Statement("update campaign_batches set send_after = now() where status = 'waiting'"))
    assert send(corpus) == [batch]
    again = claim(corpus, batch)
    assert again is not None
    assert again.claims == 1
    with corpus.begin() as conn:
        campaigns.LEASES.give_back(conn, [(again.id, again.claims)])
    assert send(corpus) == [batch]


def test_batches_in_flight_are_limited_and_the_oldest_campaign_goes_first(corpus: Database) -> None:
    create(corpus)
    create(corpus, "b")
    first = send(corpus, 2)
    assert len(first) == 2
    assert send(corpus, 2) == []
    held = claim(corpus, first[0])
    assert send(corpus, 2) == []
    assert held is not None
    finish(corpus, held)
    [third] = send(corpus, 2)
    assert third == first[1] + 1
    assert len(send(corpus, 1000)) == 3


def test_a_stopped_campaign_is_not_claimed_and_can_continue(corpus: Database) -> None:
    create(corpus)
    batch, other, _ = send(corpus)
    held = claim(corpus, batch)
    assert held is not None
    with corpus.begin() as conn:
        campaigns.set_state(conn, "a", CampaignState.STOPPED)
    assert claim(corpus, other) is None
    finish(corpus, held)  # answers in flight are kept
    with corpus.begin() as conn:
        conn.execute(Statement("update campaign_batches set send_after = now()"))
    assert send(corpus) == []
    assert campaign_row(corpus).state == "stopped"
    with corpus.begin() as conn:
        campaigns.set_state(conn, "a", CampaignState.ACTIVE)
    assert other in send(corpus)
    assert campaign_row(corpus).state == "active"


def test_failed_items_are_kept_with_their_reason_and_retried_alone(corpus: Database) -> None:
    create(corpus)
    sent = send(corpus)
    held = claim(corpus, sent[0])
    assert held is not None
    with corpus.connect() as conn:
        lost = sql.run(conn, "store/campaign_items", batch=held.id).scalars()[0]
    finish(corpus, held, {lost: "model: the context is too long"})
    for batch in sent[1:]:
        held = claim(corpus, batch)
        assert held is not None
        finish(corpus, held)
    row = campaign_row(corpus)
    assert (row.state, row.failed, row.done) == ("done", 1, row.items)
    assert scalar(corpus, f"select failure from campaign_items where id = {lost}") == "model: the context is too long"
    with corpus.begin() as conn:
        assert campaigns.retry(conn, "a") == 1
    assert send(corpus) == sent[:1]
    again = claim(corpus, sent[0])
    assert again is not None
    with corpus.connect() as conn:
        assert sql.run(conn, "store/campaign_items", batch=again.id).scalars() == [lost]
    finish(corpus, again, answer=YesNo(yes=0.5, no=0.5))
    row = campaign_row(corpus)
    assert (row.state, row.failed) == ("done", 0)
    assert scalar(corpus, "select count(*) from answers where yes = 0.5") in (1, 2)
    with corpus.begin() as conn:
        assert campaigns.retry(conn, "a") == 0


def test_answers_are_never_overwritten(corpus: Database) -> None:
    create(corpus)
    with pytest.raises(UsageError, match="there is a campaign 'a' already"):
        create(corpus)
    held = claim(corpus, send(corpus)[0])
    assert held is not None
    finish(corpus, held)
    first = "select min(item_id) from answers"
    again = AnsweredItem(scalar(corpus, first), "m", "http://s", 7, ((Question("Is it good?"), YES),))
    other = claim(corpus, held.id + 1)
    assert other is not None
    with pytest.raises(psycopg.IntegrityError), corpus.begin() as conn:
        campaigns.finish(conn, other, [again], {})


def test_a_second_campaign_about_the_same_blocks_is_allowed(corpus: Database) -> None:
    create(corpus)
    create(corpus, "b", rubric=parse('[questions]\nall = ["Is it better?"]'))
    for batch in send(corpus):
        held = claim(corpus, batch)
        assert held is not None
        finish(corpus, held)
    versions = "select count(distinct rubric) from campaign_answers group by block_id"
    with corpus.connect() as conn:
        assert set(conn.execute(Statement(versions)).scalars()) == {2}


def test_an_unknown_campaign_is_refused(db: Database) -> None:
    with db.connect() as conn:
        for call in (campaigns.rows, campaigns.campaign_id, campaigns.retry):
            with pytest.raises(UsageError, match="there is no campaign 'x'"):
                call(conn, "x")


# -------------------------------------------------------------------------------------------------- calibration


def pairs(db: Database, condition: str = "true") -> list[tuple[Any, ...]]:
    query = f"select truth, exact, probability, answer from calibration_pairs where {condition} order by block_id"
    with db.connect() as conn:
        return [tuple(row) for row in conn.execute(Statement(query))]


def test_pairs_are_probabilities_and_grounded_labels(corpus: Database) -> None:
    """For each executed action the model says 0.9, 0.6 or nothing, whether the action ran or not."""
    question = prompts.questions(BlockType.ACTION)[1]
    with corpus.begin() as conn:
        conn.execute(Statement("delete from scores"))
        executed = conn.execute(
            Statement("select id, candidate_id, ran from blocks where type = 'action' and ran is not null order by id")
        ).all()
        step = conn.execute(Statement("select min(id) from steps")).scalar_one()
        for position, row in enumerate(executed):
            said = [(0.9, 0.1), (0.6, 0.4), (0.0, 0.0)][position % 3]
            conn.execute(
                Statement(
                    """
                    insert into scores
                      (trace_id, step_id, candidate_id, position, stage, rubric, question, yes, no, score)
                    select trace_id, :step, id, :position, :stage, 'r', :question, :yes, :no, :score
                    from candidates where id = :candidate
                    """
                ),
                {
                    "step": step, "candidate": row.candidate_id, "position": position, "question": question,
                    "stage": "raw" if position % 2 else "selection", "yes": said[0], "no": said[1],
                    "score": 0.0 if said[0] else None,
                },
            )  # fmt: skip
    assert len(executed) > 5
    expected = [("ran", True, [0.9, 0.6, None][position % 3], row.ran) for position, row in enumerate(executed)]
    found = pairs(corpus)
    assert [(a, b, None if p is None else round(p, 9), c) for a, b, p, c in found] == expected
    with corpus.begin() as conn:
        conn.execute(Statement("update scores set question = 'Is it good?'"))
    assert {exact for _, exact, _, _ in pairs(corpus)} == {False}


def test_an_evaluation_is_paired_if_it_is_the_only_one_of_its_tick(corpus: Database) -> None:
    question = prompts.questions(BlockType.EVALUATION)[1]
    with corpus.begin() as conn:
        conn.execute(Statement("delete from scores where candidate_id is null"))
        conn.execute(
            Statement(
                """
                insert into scores
                  (trace_id, step_id, candidate_id, position, stage, rubric, question, yes, no, score)
                select b.trace_id, b.executed_by, b.candidate_id, 0, 'raw', 'r', :question, 0.8, 0.2, 1.4
                from blocks b where b.type = 'evaluation' and b.ran
                """
            ),
            {"question": question},
        )
        truth = conn.execute(
            Statement(
                """
                select e.value = 'true' and e.error is null from blocks b
                join evaluations e on e.trace_id = b.trace_id and e.tick = b.tick and e.scope = 'tick'
                where b.type = 'evaluation' and b.ran order by b.id
                """
            )
        ).scalars()
    assert truth
    found = pairs(corpus, "truth = 'evaluation'")
    assert found == [("evaluation", True, 0.8, answer is True) for answer in truth]
    with corpus.begin() as conn:  # as if each had returned None
        conn.execute(Statement("update evaluations set value = null, error = null where scope = 'tick'"))
    assert pairs(corpus, "truth = 'evaluation'") == [("evaluation", True, 0.8, False)] * len(truth)
    with corpus.begin() as conn:
        conn.execute(
            Statement(
                """
                insert into evaluations (trace_id, step_id, tick, position, scope, title)
                select trace_id, step_id, tick, 99, scope, title from evaluations where scope = 'tick'
                """
            )
        )
    assert pairs(corpus, "truth = 'evaluation'") == []


def test_corrections_are_stored_once_and_given_as_settings(db: Database) -> None:
    fit = Fit("Is it?", 0.5, -1.0, 100, 40, 0.25, 0.2)
    with db.begin() as conn:
        campaigns.save_correction(conn, "c", [vars(fit)], campaign=None, condition=None, version="0")
    with db.begin() as conn:
        assert campaigns.correction(conn, "c") == {"Is it?": (0.5, -1.0)}
        with pytest.raises(UsageError, match="there is no correction 'd': there are c"):
            campaigns.correction(conn, "d")
        with pytest.raises(UsageError, match="never overwritten"):
            campaigns.save_correction(conn, "c", [vars(fit)], campaign=None, condition=None, version="0")


def test_the_example_rubric_is_in_the_documentation() -> None:
    root = Path(__file__).parents[2]
    assert "docs/rubric.toml" in (root / "docs" / "rescoring.md").read_text()
