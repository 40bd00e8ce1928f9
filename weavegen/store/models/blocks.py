"""Blocks, with what the model read and sampled for them, and the results of their execution."""

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, REAL

from weavegen.store.models.columns import Numbers, column, json, now, reference, table
from weavegen.trace.blocks import BlockType

TOOLSETS = table(
    "toolsets",
    "Sets of tools that models were offered, by content.",
    column("sha256", str, "Hash of the text, hexadecimal.", unique=True),
    column("tools", str, "JSON list of schemas, in the form of OpenAI's API for functions."),
    now("created_at", "When it was first offered."),
)

BLOCKS = table(
    "blocks",
    "The blocks of the traces, as recorded.",
    reference("trace_id", "Its trace."),
    column("index", int, "Position in the trace, from 0, without gaps."),
    column("tick", int, "Number of its tick."),
    column("subagent", str, "Name of the subagent that wrote it."),
    column("type", BlockType, "Its type: orientation, action, ..."),
    column("body", str, "The text between header and footer, not commented out."),
    column("rendered", str, "The block as it stands in the trace."),
    column("timestamp", float, "When the writing of it began, in seconds since the epoch."),
    column("time_remaining", float, "Seconds left of the time budget at that time."),
    column("block_size", int | None, "Tokens that the model was allowed; null: the model did not write it."),
    column("bm25_query", str | None, "The query that the model wrote before the block."),
    column("title", str | None, "Title of an observation."),
    column("tick_start", int | None, "In an orientation: index of the tick's first block."),
    column("working_directory", str | None, "In an orientation: the working directory."),
    column("compiles", bool, "Whether its body is legal Python. Always true of prose."),
    column("question", str | None, "What the evaluator was asked about it."),
    column("answer", bool | None, "The answer, drawn once with the model's own probability."),
    column("probability", float | None, "Probability of the drawn answer."),
    column(
        "ran",
        bool | None,
        "Whether it ran without errors; null: it was not executed. In a return: whether the caller accepted it.",
    ),
    column("exception", str | None, "Class of the exception that ended the block's code."),
    column("tags", ARRAY(sa.Text), "Tags."),
    column("score", float | None, "Raw score: log odds after rewriting, without penalties."),
    column("reward", float | None, "Its share of the tick's reward."),
    column("preference", float | None, "Correction that preference data add to its score; null: none."),
    reference("candidate_id", "The candidate that it was made of.", index=True, nullable=True),
    reference("executed_by", "The step that executed it.", to="steps", index=True, nullable=True),
    reference("toolset_id", "The tools that the model may call from here on; null: it says nothing.", ondelete=None),
    now("created_at", "When it was recorded."),
    sa.UniqueConstraint("trace_id", "index"),
    sa.Index("ix_blocks_type_score", "type", "score", postgresql_where=sa.text("score is not null")),
)

BLOCK_TOKENS = table(
    "block_tokens",
    "Token ids of blocks as the model read them, if kept.",
    column("trace_id", int, "Its trace.", primary_key=True),
    column("index", int, "Index of the block.", primary_key=True),
    column("token_ids", Numbers(sa.Integer), "Token ids."),
    sa.ForeignKeyConstraint(["trace_id", "index"], ["blocks.trace_id", "blocks.index"], ondelete="CASCADE"),
)

EVALUATIONS = table(
    "evaluations",
    "Results of evaluation callbacks, of the task and of the tick.",
    reference("trace_id", "Its trace.", index=True),
    reference("step_id", "The step that ran it."),
    column("tick", int, "Number of its tick."),
    column("position", int, "Position among the evaluations of the tick, from 0."),
    column("scope", str, "task: bound by the bootstrap; tick: written by the agent."),
    column("title", str, "Its title, a question."),
    json("value", "What it returned, as JSON, or as its repr. Null on an error.", nullable=True),
    column("error", str | None, "The exception that it raised, or why it was not evaluated; null: neither."),
    column("protected", bool, "Whether it ran where no code of the agent reaches it.", server_default="false"),
    column("cause", str | None, "Whose fault it is that it was not evaluated: agent, ...; null: it was."),
    sa.UniqueConstraint("step_id", "position"),
)

LABELS = table(
    "grounded_labels",
    "Questions of assertions, and whether the assertions held. See blocks.executed_by.",
    reference("trace_id", "Its trace.", index=True),
    reference("step_id", "The step that ran the assertion."),
    column("position", int, "Position among the assertions that the step reached, from 0."),
    column("question", str, "The assertion's message."),
    column("answer", bool, "Whether it held."),
    sa.UniqueConstraint("step_id", "position"),
)


PROMPTS = table(
    "prompts",
    "What the model read in a step: blocks 0 and 1, the blocks from first_block on, and text that is in no block.",
    reference("step_id", "The step.", primary_key=True),
    reference("trace_id", "Its trace.", index=True),
    column("server", str, "Base URL of the server that answered."),
    column("model", str | None, "The model that read it, and wrote or judged; null: version 0.1 wrote the row."),
    column("first_block", int, "Index of the oldest block in the prompt besides 0 and 1."),
    column("tokens", int | None, "Prompt tokens before the body, as the server counts; null: not reported."),
    column("cached", int | None, "Prompt tokens that came from the prefix cache; null: not reported."),
    json("cut", "What was left out for the model's length; null: nothing.", nullable=True),
    column("length", int | None, "In a conversation: its highest number of tokens in all."),
    column(
        "token_ids",
        Numbers(sa.Integer),
        "Token ids of the text in no block: retrieved texts, instruction, header, fixed beginning of the body. "
        "Kept only if a setting says so.",
        nullable=True,
    ),
)

CANDIDATES = table(
    "candidates",
    "Every text that was sampled, rejected ones included.",
    reference("trace_id", "Its trace.", index=True),
    reference("step_id", "The step that sampled it."),
    column("position", int, "Position among the candidates of its round, from 0."),
    column("block_index", int, "Index of the block that it was sampled for."),
    column("type", str, "Type of that block; bm25-query: a query; next-type: the name of a type."),
    column("round", int, "Number of the round: from 0 in a cascade, from 1 in a tree search."),
    column("depth", int | None, "Depth of a node in a tree search, from 1; null: a whole candidate."),
    reference("parent_id", "The node that it continues.", to="candidates", index=True, nullable=True),
    column("text", str, "The body: fixed prefix or parent's text, then the sampled text."),
    column("finish_reason", str, "stop or length, as the server reports."),
    column("tokens", int, "Sampled tokens."),
    column("token_ids", Numbers(sa.Integer), "Sampled token ids, if kept.", nullable=True),
    column("logprobs", Numbers(REAL), "Their log-probabilities, if kept.", nullable=True),
    sa.UniqueConstraint("step_id", "position"),
)

PENALTIES = table(
    "penalties",
    "Verdicts on candidates. Penalties count in selection only.",
    reference("candidate_id", "The candidate.", primary_key=True),
    column("compiles", bool, "Whether it is legal Python."),
    column("viable", bool | None, "Whether a node of a tree search may still become legal."),
    column("error", str | None, "The syntax error, if it is not legal."),
    column("rewritten", str | None, "Its legal structure, if that differs from its text."),
    column("syntax", float, "Does not compile."),
    column("extra_elements", float, "More top-level elements than the shape has."),
    column("not_a_string", float, "A prose block that does not begin with a string."),
    column("code_in_prose", float, "Code-like text inside a prose block."),
    column("shape", float, "A callback block that is not exactly a function and its registration."),
    column("wrong_name", float, "Registers another name than the function's."),
    column("title", float, "An evaluation whose title is no question, or can't be read."),
    column("assertions", float, "Assertions missing, without a question, inside a try, or too many."),
    column("forbidden_calls", float, "Calls that an action may not make."),
    column("length_after_debug", float, "Length beyond 96 tokens right after a debug block."),
)

SCORES = table(
    "scores",
    "Yes/no questions to the model: a row for each text and question, never overwritten.",
    reference("trace_id", "Its trace.", index=True),
    reference("step_id", "The step that asked."),
    reference("candidate_id", "The candidate asked about.", index=True, nullable=True),
    column("position", int, "Position of the text in the step, from 0."),
    column("stage", str, "selection: of texts as sampled; raw: as rewritten; option: of the model itself."),
    column("rubric", str, "Version of the rubric and its calibration examples."),
    column("question", str, "The question."),
    column("yes", float, "Probability mass of yes."),
    column("no", float, "Probability mass of no."),
    column("score", float | None, "Log odds of yes; null: neither answer had any mass."),
    sa.UniqueConstraint("step_id", "position", "question"),
)

TRIALS = table(
    "trials",
    "What came of candidates that ran in a copy of the environment, before one of them was chosen.",
    reference("step_id", "The step that tried them.", primary_key=True),
    reference("candidate_id", "The candidate.", primary_key=True, index=True),
    reference("trace_id", "Its trace.", index=True),
    column("ran", bool | None, "Whether it ran without errors; null: it could not be tried."),
    column("not_tried", str | None, "Why it could not be tried."),
    column("exception", str | None, "Class of the exception that ended it."),
    column("error", str | None, "The exception's text, with the traceback."),
    json("value", "What its callback returned.", nullable=True),
    json("assertions", "The questions of its assertions, and whether they held."),
    json("evaluations", "The task's evaluations after it: title, value, error."),
    json("views", "The observation views after it: title, text, error."),
    column("output", str, "What it printed."),
    column("seconds", float, "How long it took."),
)
