"""What an agent program may yield, and what it gets back. Values only: no I/O, no database, no queue.

A program is a generator. It yields one `Step` (or a tuple of steps, which then run side by side) and is
sent the result (or the tuple of results). It yields an `Append` to record a block and is sent the `Block`.
"""

from typing import Any, Literal

import msgspec

from weavegen.trace.blocks import FULL_BLOCK, BlockType


class Value(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of everything here: immutable, and written to the journal as JSON."""


# ---------------------------------------------------------------------------------------------- steps


class Hit(Value, frozen=True, kw_only=True):
    """A retrieved text."""

    id: int
    example: bool = False
    """`id` is that of an example, not of a block."""
    score: float


class Prompt(Value, frozen=True, kw_only=True):
    """What the model reads before a block, by reference: `context.compose` turns it into text.

    Kept by reference because one block may cost 84 requests over the same 30,000 tokens. Where `type` is
    assistant, it is a conversation: the messages among the window's blocks by the model's chat template, nothing
    pinned, nothing left out.
    """

    type: BlockType
    window: tuple[int, int]
    """Blocks [first, end) of the trace's tail that are in the context, after the pinned ones."""
    recalled: tuple[Hit, ...] = ()
    """What was retrieved, best first."""
    header: str = ""
    """Header lines of the block to come; a message has none."""
    query: bool = False
    """The model is to write the header's BM25 query, not the block."""
    next: bool = False
    """The model is to name the type of the block after one of `type`."""
    prefix: str = ""
    """Fixed beginning of the body, such as `def action_`."""


class Sample(Value, frozen=True, kw_only=True, tag="sample", tag_field="kind"):
    """Ask the model for `n` continuations. Result: `list[Candidate]`, n long."""

    prompt: Prompt
    parent: tuple[int, int] | None = None
    """(ordinal of its Sample step, position) of the tree's node whose text they go on from; None: the prompt's."""
    depth: int = 0
    """Of a tree's nodes, from 1; 0: they are whole candidates."""
    n: int
    round: int
    max_tokens: int
    """Of each; 0: as many as the prompt leaves room for."""
    temperature: float
    top_k: int
    repetition_penalty: float
    seed: int


class Lint(Value, frozen=True, kw_only=True, tag="lint", tag_field="kind"):
    """Check and rewrite candidates. Result: `list[Verdict]`, one per candidate, in order."""

    type: BlockType
    sample: int
    """Ordinal, within the tick, of the `Sample` step whose candidates are meant."""
    after_debug: bool = False
    """Straight after a debug block, length counts too."""
    pieces: bool = False
    """The candidates are a tree's nodes: of those that were cut off, also say whether they may become legal."""
    before: int = 0
    """Tokens of the nodes above them."""
    linting: bool = True
    """False: only find out whether they compile."""


class Score(Value, frozen=True, kw_only=True, tag="score", tag_field="kind"):
    """Ask yes/no questions about texts. Result: `list[list[YesNo]]`, [text][question].

    The texts are the candidates of step `sample`, or `texts` where that is None.
    """

    prompt: Prompt
    questions: tuple[str, ...]
    sample: int | None = None
    texts: tuple[str, ...] = ()
    candidate: tuple[int, int] | None = None
    """(ordinal of the Sample step, position) of the candidate that the one text was rewritten from."""


class Retrieve(Value, frozen=True, kw_only=True, tag="retrieve", tag_field="kind"):
    """BM25 over what the trace has left behind and the examples. Result: `list[Hit]`, best first."""

    query: str
    """In the syntax of query.py."""
    before: int
    """Only blocks of this trace with an index below this one: never what is still in the window."""
    top_k_hits: int = msgspec.field(name="considered")
    """Hits at most."""
    least_score: float
    limit: int
    """Of the hits, those that are given back."""
    memory: float | None = None
    """Raw score from which on blocks of other traces are looked through, too; None: never."""
    memory_scope: Literal["job", "all"] = "job"
    """Other traces of its job, or of all jobs."""


Op = Literal["bootstrap", "begin", "list", "run", "resume", "evaluate", "call", "trial"]


class Execute(Value, frozen=True, kw_only=True, tag="execute", tag_field="kind"):
    """Run something in the trace's environment process. Result: `Executed`."""

    op: Op
    """bootstrap: execute the bootstrap file whole, then its action callback.
    begin: start a tick (forget the last tick's action and evaluations) and show every observation view.
    list: like begin, but only name the views.
    run: execute a block; of an action also the callback that it registered.
    resume: let an action go on that waits for a subagent (`Executed.waits_for`), or for other traces
    (`Executed.delegates`): then `source` is a JSON list of what came of them, as `Delegated`.
    evaluate: run the task's evaluations and the tick's.
    call: call one of the functions of box/calls.py; `source` is a JSON object with its name and arguments.
    `Executed.value` is then `{"success": true, "output": ...}` or `{"success": false, "error": ...}`.
    trial: run programs in processes of their own, test and evaluate them; `source` is the JSON object that
    `evaluate_programs` in box/trial.py takes, `Executed.value` is its result."""
    subagent: str = "main"
    """Whose tick it is."""
    type: BlockType | None = None
    source: str = ""


class RunSubagent(Value, frozen=True, kw_only=True, tag="work", tag_field="kind"):
    """Run a subagent's ticks until it returns or its time is up. Result: `SubagentDone`."""

    subagent: str
    minutes: float
    """Its time budget."""


class LookUp(Value, frozen=True, kw_only=True, tag="consult", tag_field="kind"):
    """Call a tool that only reads: the corpus, the job's documents, the tool library. Result: `LookUpResult`."""

    tool: str
    arguments: dict[str, Any]


class Delegate(Value, frozen=True, kw_only=True, tag="delegate", tag_field="kind"):
    """Have another agent do a task in a trace of its own, with its own context. Result: `Delegated`."""

    agent: str
    """A name of agents.AGENTS."""
    task: dict[str, Any]
    """What that agent is given; see its program."""
    label: str
    """For people: status lines, Flower."""


class AskHuman(Value, frozen=True, kw_only=True, tag="await", tag_field="kind"):
    """Ask the person whose request it is, and wait for as long as it takes. Result: `HumanAnswer`."""

    question: str


Step = Sample | Lint | Score | Retrieve | Execute | RunSubagent | LookUp | Delegate | AskHuman
STEP_KINDS: dict[str, type[Step]] = {
    "sample": Sample,
    "lint": Lint,
    "score": Score,
    "retrieve": Retrieve,
    "execute": Execute,
    "work": RunSubagent,
    "consult": LookUp,
    "delegate": Delegate,
    "await": AskHuman,
}
WAITS = ("work", "delegate", "await")
"""Kinds of steps that no worker takes: something else that happens ends them."""


# -------------------------------------------------------------------------------------------- results


class Candidate(Value, frozen=True, kw_only=True):
    """One sampled continuation."""

    text: str
    """The body from its beginning: the prompt's fixed prefix, a tree's nodes above it, what the model wrote."""
    finish_reason: str
    """`stop` or `length`, as the server says."""
    tokens: int
    """Sampled tokens."""
    prompt_tokens: int | None = None
    """Of a message: tokens that the conversation took before it, as far as the server says."""
    length: int | None = None
    """Of a message: tokens that the conversation may take in all."""


class Penalties(Value, frozen=True, kw_only=True):
    """What the linter holds against a candidate, a column each. Subtracted for selection only."""

    syntax: float = 0.0
    """Does not compile. 2, and 2 + score where the score was above 4 (the part of the score is added there)."""
    extra_elements: float = 0.0
    not_a_string: float = 0.0
    code_in_prose: float = 0.0
    shape: float = 0.0
    """Of a callback block: not exactly a function followed by its registration."""
    wrong_name: float = 0.0
    title: float = 0.0
    assertions: float = 0.0
    forbidden_calls: float = 0.0
    length_after_debug: float = 0.0
    """Of a block straight after a debug block."""

    def total(self) -> float:
        return float(sum(getattr(self, name) for name in self.__struct_fields__))


class Verdict(Value, frozen=True, kw_only=True):
    """What linting found in one candidate."""

    compiles: bool
    error: str | None = None
    """The syntax error as Python words it, where it does not compile."""
    rewritten: str
    """The candidate reduced to its legal structure; the text itself where there is nothing to keep."""
    penalties: Penalties
    viable: bool | None = None
    """Of a half-written node: whether it may still become legal. The rest of the verdict is on it as it stands."""


class YesNo(Value, frozen=True, kw_only=True):
    """Probability mass of the answers to one question: 0 to 1 each, their sum at most 1."""

    yes: float
    no: float


class Failure(Value, frozen=True, kw_only=True):
    """An exception in the environment."""

    type: str
    """Name of the exception's class, such as `AssertionError`."""
    message: str
    traceback: str
    stage: Literal["compile", "register", "callback", "view", "evaluation", "process"]


class View(Value, frozen=True, kw_only=True):
    """One observation view as shown: its text, or why it failed."""

    title: str
    text: str = ""
    error: Failure | None = None


class Evaluated(Value, frozen=True, kw_only=True):
    """One evaluation as run."""

    title: str
    scope: Literal["task", "tick"]
    value: Any = None
    """A JSON value; what is none is given as its repr."""
    error: Failure | None = None


class Asserted(Value, frozen=True, kw_only=True):
    """An assertion whose message is a question, and how it came out: a grounded label for the evaluator."""

    question: str
    answer: bool


class SubagentState(Value, frozen=True, kw_only=True):
    """One row of the problem map."""

    name: str
    parent: str | None
    description: str
    schema: dict[str, Any]
    time_budget: float
    """Minutes."""
    evaluations: tuple[Evaluated, ...] = ()
    """Latest results of the task's evaluations."""
    block_size: int = FULL_BLOCK
    """Tokens that it may write in a block."""
    completed: bool = False
    returned: Any = None
    """What it returned to its caller, with the results of its task's evaluations; None before that."""


class Executed(Value, frozen=True, kw_only=True):
    """What an `Execute` step brought."""

    error: Failure | None = None
    waits_for: str | None = None
    """Name of the subagent that the action has called: it goes on with a `resume` when that one is done."""
    delegates: tuple[Delegate, ...] = ()
    """What the action has asked other agents for: it goes on with a `resume` when all these are done."""
    registered: tuple[str, ...] = ()
    """Titles that the block registered, in order."""
    value: Any = None
    """What the action's callback returned, as a JSON value or its repr."""
    views: tuple[View, ...] = ()
    evaluations: tuple[Evaluated, ...] = ()
    assertions: tuple[Asserted, ...] = ()
    subagents: tuple[SubagentState, ...] = ()
    working_directory: str = "/app"
    output: str = ""
    """What was printed, cut to 8,000 characters."""


class SubagentDone(Value, frozen=True, kw_only=True):
    """A subagent is done, or out of time. What it returned is where it was called from, in the environment."""

    index: int
    """Of the trace's next block: the subagent's blocks lie between this one and the caller's last."""
    last_type: BlockType
    """Of the trace's last block."""


class LookUpResult(Value, frozen=True, kw_only=True):
    """What a tool that only reads has to say. Wrong arguments and failures are answers like any other."""

    output: str
    success: bool = True


class Delegated(Value, frozen=True, kw_only=True):
    """What came of a task that another agent was given."""

    trace: int
    """Number of the trace in which it did it."""
    returned: Any = None
    """What that trace returned; None where it failed, was cancelled, or ran out of its budget."""
    error: str | None = None
    """Why nothing was returned, in one line."""


class HumanAnswer(Value, frozen=True, kw_only=True):
    """What the person said."""

    text: str


# ------------------------------------------------------------------------------------------- effects


class Append(Value, frozen=True, kw_only=True):
    """Record a block. It takes effect in the transaction that advances the journal; the `Block` is sent back.

    Index, timestamp and the drawn label are set when it is recorded.
    """

    type: BlockType
    body: str
    began: float | None = None
    """When its writing began (its header was shown to the model with that time); None: now."""
    block_size: int | None = None
    bm25_query: str | None = None
    title: str | None = None
    tick_start: int | None = None
    working_directory: str | None = None
    compiles: bool = True
    question: str | None = None
    yes: float | None = None
    """Probability of yes with which the label is drawn."""
    ran: bool | None = None
    exception: str | None = None
    """Class of the exception that ended it, where it did not run."""
    candidate: tuple[int, int] | None = None
    """(ordinal of the Sample step, position) of the candidate that this block was made of."""
    score: float | None = None
    """Its raw score: without penalties, after rewriting. Log odds."""
    executed: int | None = None
    """Ordinal of the Execute step that ran it."""
    tags: tuple[str, ...] = ()


class Reward(Value, frozen=True, kw_only=True):
    """A tick's reward, and what goes to which block index."""

    reward: float
    shares: dict[int, float]
    """Of the reward."""
    preferences: dict[int, float]
    """What a block's score is corrected by in preference data (see agents/reward.py)."""


class Note(Value, frozen=True, kw_only=True):
    """A line for the trace's history, for people."""

    kind: str
    detail: str


class ToolSaved(Value, frozen=True, kw_only=True):
    """A tool for the library, or a new version of one that it has; see store/tools.py."""

    name: str
    description: str
    signature: str
    """Its first line: `def name(...) -> ...`."""
    source: str
    tests: str = ""
    evaluator: str = ""
    score: float | None = None
    """By the evaluator; None: nothing has scored it."""
    generality: float | None = None
    """Log odds that it serves other requests, too; None: the model was not asked."""
    program: tuple[int, int] | None = None
    """(trace, number) of the program that it is, where programs were searched for it."""


class ToolCalled(Value, frozen=True, kw_only=True):
    """A tool of the library was called."""

    name: str
    version: int
    success: bool
    """It came back with a value."""


class ProgramEvaluated(Value, frozen=True, kw_only=True):
    """A program that a search has tried, for the table `programs`."""

    number: int
    """Among all that the search has tried, from 0, without gaps."""
    generation: int
    """0: what the search began with."""
    island: int | None = None
    """None: it is what the search began with."""
    parents: tuple[int, ...] = ()
    """Numbers of the programs that the model was shown."""
    source: str
    score: float | None = None
    """None: it has none, for `error`."""
    signature: tuple[float, ...] = ()
    """Its score on each instance."""
    error: str | None = None
    candidate: tuple[int, int] | None = None
    """(ordinal of the Sample step, position) of the message that it was taken from."""


Effect = Append | Reward | Note | ToolSaved | ToolCalled | ProgramEvaluated


class Ended(Value, frozen=True, kw_only=True):
    """What a program returns: whether the agent goes on with another tick."""

    done: bool
    returned: Any = None
    state: Any = None
    """What the next tick is told: a JSON value, its `Start.state`."""
    failed: str | None = None
    """Kind of failure (see errors.py), where the trace can't go on."""
    reason: str | None = None


RESULTS: dict[str, Any] = {
    "sample": list[Candidate],
    "lint": list[Verdict],
    "score": list[list[YesNo]],
    "retrieve": list[Hit],
    "execute": Executed,
    "work": SubagentDone,
    "consult": LookUpResult,
    "delegate": Delegated,
    "await": HumanAnswer,
}
"""What each kind of step brings."""
