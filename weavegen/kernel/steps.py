"""The protocol between agent programs and the engine. Values only: no I/O, no database, no queue.

A program is a generator. It yields one `Step`, or a tuple of steps that run side by side, and receives the
result or the tuple of results. An effect (`Append`, `Reward`, `Note`, ...) needs no worker: a program records it
by `t.append` or `t.emit`, and it is stored in the transaction that advances the journal.

A new kind of step is a subclass of `Step` here, which says everything about the kind, and the function that does
its work (engine/step_work.py).
"""

from typing import Any, ClassVar, Literal

import msgspec

from weavegen.trace.blocks import FULL_BLOCK, BlockType, Draft


class Value(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of everything here: immutable, and written to the journal as JSON."""


class Candidate(Value, frozen=True, kw_only=True):
    """One sampled continuation."""

    text: str
    """The body from its beginning: the fixed prefix, the tree's nodes above, the sampled text."""
    finish_reason: str
    """`stop` or `length`, as the server reports it."""
    tokens: int
    """Sampled tokens."""
    prompt_tokens: int | None = None
    """Of a message: tokens of the conversation before it. None: the server does not report them."""
    length: int | None = None
    """Of a message: the largest number of tokens that the whole conversation may have."""


class Penalties(Value, frozen=True, kw_only=True):
    """The penalties of one candidate, a column each. They are subtracted for selection only."""

    syntax: float = 0.0
    """The text does not compile: 2. Selection adds the score where it is above 4."""
    extra_elements: float = 0.0
    not_a_string: float = 0.0
    code_in_prose: float = 0.0
    shape: float = 0.0
    """A callback block is not exactly a function followed by its registration."""
    wrong_name: float = 0.0
    title: float = 0.0
    assertions: float = 0.0
    forbidden_calls: float = 0.0
    length_after_debug: float = 0.0
    """The length of a block straight after a debug block."""

    def total(self) -> float:
        return float(sum(getattr(self, name) for name in self.__struct_fields__))


class Verdict(Value, frozen=True, kw_only=True):
    """The result of linting one candidate."""

    compiles: bool
    error: str | None = None
    """Python's syntax error, where the text does not compile."""
    rewritten: str
    """The candidate reduced to its legal structure; the text itself where none was found."""
    penalties: Penalties
    viable: bool | None = None
    """Whether an unfinished node of a tree may still become legal. The other fields judge it as it stands."""


class YesNo(Value, frozen=True, kw_only=True):
    """Probability mass of the two answers to one question: each 0 to 1, their sum at most 1."""

    yes: float
    no: float


class Hit(Value, frozen=True, kw_only=True):
    """A retrieved text."""

    id: int
    example: bool = False
    """Whether `id` is that of an example and not of a block."""
    score: float
    """BM25."""


class Failure(Value, frozen=True, kw_only=True):
    """An exception in the environment."""

    type: str
    """Name of the exception's class, such as `AssertionError`."""
    message: str
    traceback: str
    stage: Literal["compile", "register", "callback", "view", "evaluation", "process"]


class View(Value, frozen=True, kw_only=True):
    """One observation view as shown: its text, or the error that it raised."""

    title: str
    text: str = ""
    error: Failure | None = None


class Evaluated(Value, frozen=True, kw_only=True):
    """The result of one evaluation."""

    title: str
    scope: Literal["task", "tick"]
    value: Any = None
    """A JSON value. Other values are given by their repr."""
    error: Failure | None = None
    protected: bool = False
    """Whether it ran where no code of the agent reaches it. Its value is then True, False, a reward, or None."""
    cause: Literal["agent", "task", "infrastructure"] | None = None
    """Of a protected evaluation that was not evaluated: whose fault it is. `error` says what happened."""


class Asserted(Value, frozen=True, kw_only=True):
    """An assertion whose message is a question, and its result: a grounded label for the evaluator."""

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
    """What it returned to its caller, with the results of its task's evaluations. None: it has not returned."""


class Added(Value, frozen=True, kw_only=True):
    """A block that a callback has added."""

    type: Literal["error", "observation"]
    text: str
    title: str = ""


class Writes(Value, frozen=True, kw_only=True):
    """A block of reasoning that an action has the model write."""

    type: Literal["orientation", "debug", "backtrack", "expectation"]
    hint: str = ""
    """Added to the instruction."""
    questions: tuple[str, ...] = ()
    """What the evaluator is asked about the candidates. Empty: what it is asked about this type."""


class Executed(Value, frozen=True, kw_only=True):
    """The result of an `Execute` step."""

    error: Failure | None = None
    waits_for: str | None = None
    """Name of the subagent that the action has called. A `resume` lets the action go on after its ticks."""
    delegates: "tuple[Delegate, ...]" = ()
    """Tasks that the action gives to other agents. A `resume` lets the action go on when all have ended."""
    trials: "tuple[Executed, ...]" = ()
    """The result of each candidate that a `try` has run."""
    not_tried: str | None = None
    """Why a candidate, or all of them, could not be tried."""
    seconds: float = 0.0
    """Duration of a trial."""
    writes: Writes | None = None
    """The block that the action has the model write. A `resume` lets the action go on after it."""
    added: tuple[Added, ...] = ()
    """Blocks that the callbacks have added."""
    registered: tuple[str, ...] = ()
    """Titles that the block registered, in order."""
    value: Any = None
    """What the action's callback returned, as a JSON value or its repr."""
    views: tuple[View, ...] = ()
    imagined: bool = False
    """Whether the tick that this begins is one of a plan."""
    evaluations: tuple[Evaluated, ...] = ()
    claims: dict[str, str] = {}
    """What protected evaluations ask of the live process: variables as JSON, which the agent may have forged."""
    assertions: tuple[Asserted, ...] = ()
    subagents: tuple[SubagentState, ...] = ()
    working_directory: str = "/app"
    output: str = ""
    """What was printed, cut to 8,000 characters."""


class SubagentDone(Value, frozen=True, kw_only=True):
    """A subagent has returned or is out of time. Its return value is in the environment."""

    index: int
    """Index of the trace's next block: the subagent's blocks lie between this one and the caller's last."""
    last_type: BlockType
    """Type of the trace's last block."""


class LookUpResult(Value, frozen=True, kw_only=True):
    """The answer of a look-up tool. Wrong arguments and failures are answers too."""

    output: str
    success: bool = True


class Delegated(Value, frozen=True, kw_only=True):
    """The result of a task that another agent was given."""

    trace: int | None = None
    """Number of that agent's trace. None: there is none, because the trace has asked for too many."""
    returned: Any = None
    """What that trace returned. With `error`: its best so far, before it failed or spent its budget. None: nothing."""
    error: str | None = None
    """Why that trace ended before its work was done, in one line. None: it was done."""


class HumanAnswer(Value, frozen=True, kw_only=True):
    """The answer of a person."""

    text: str


class Step(Value, frozen=True, kw_only=True, tag_field="kind"):
    """Base of all steps. The tag of a subclass is its kind: in the journal, in task names, metrics and views."""

    result: ClassVar[Any]
    """Type of the result."""
    queue: ClassVar[str | None] = "control"
    """Celery queue, one per resource. None: no worker takes the step, an event ends it."""
    copied: ClassVar[bool] = False
    """Whether the result is also in tables of its own, so that the journal forgets it after the tick."""

    @property
    def kind(self) -> str:
        return str(self.__struct_config__.tag)

    @property
    def summary(self) -> str:
        """What people see of the step in Flower, after its trace and tick."""
        return ""


class Prompt(Value, frozen=True, kw_only=True):
    """What the model reads before a block, by reference: kernel/context.py turns it into text.

    It is a reference because one block may cost 84 requests over the same 30,000 tokens. Where `type` is
    assistant, the prompt is a conversation: the messages among the window's blocks in the model's chat template,
    with nothing pinned.
    """

    type: BlockType
    window: tuple[int, int]
    """Blocks [first, end) of the trace that are in the context, after the pinned ones."""
    recalled: tuple[Hit, ...] = ()
    """Retrieved texts, best first."""
    header: str = ""
    """Header lines of the block to write. A message has none."""
    query: bool = False
    """The model writes the header's BM25 query and not the block."""
    next: bool = False
    """The model names the type of the block after one of `type`."""
    prefix: str = ""
    """Fixed beginning of the body, such as `def action_`."""
    hint: str = ""
    """Added to the instruction."""
    draft: str = ""
    """The best candidate of the round before, if the settings show it."""


class Sample(Step, frozen=True, kw_only=True, tag="sample"):
    """Sample `n` continuations from the model."""

    result = list[Candidate]
    queue = "sample"
    copied = True

    prompt: Prompt
    parent: tuple[int, int] | None = None
    """(ordinal of its Sample step, position) of the tree's node that they continue. None: the prompt."""
    depth: int = 0
    """Depth of the tree's nodes, from 1. 0: they are whole candidates."""
    n: int
    round: int
    max_tokens: int
    """Maximum tokens of each continuation. 0: as many as the context has room for."""
    temperature: float
    top_k: int
    repetition_penalty: float
    seed: int

    @property
    def summary(self) -> str:
        return f"{self.prompt.type} round {self.round} n={self.n}"


class Lint(Step, frozen=True, kw_only=True, tag="lint"):
    """Lint the candidates of a Sample step. The result has a verdict for each, in order."""

    result = list[Verdict]
    queue = "lint"
    copied = True

    type: BlockType
    sample: int
    """Ordinal of the `Sample` step within the tick."""
    after_debug: bool = False
    """The block follows a debug block, so its length counts too."""
    pieces: bool = False
    """The candidates are nodes of a tree: also find out whether unfinished ones may become legal."""
    before: int = 0
    """Tokens of the nodes above them."""
    linting: bool = True
    """False: find out only whether they compile."""

    @property
    def summary(self) -> str:
        return str(self.type)


class Score(Step, frozen=True, kw_only=True, tag="score"):
    """Ask the model yes/no questions about texts: the candidates of step `sample`, or `texts` where that is None.

    The result has shape [text][question].
    """

    result = list[list[YesNo]]
    queue = "score"
    copied = True

    prompt: Prompt
    questions: tuple[str, ...]
    sample: int | None = None
    texts: tuple[str, ...] = ()
    candidate: tuple[int, int] | None = None
    """(ordinal of the Sample step, position) of the candidate that the only text was rewritten from."""

    @property
    def summary(self) -> str:
        subject = "candidates" if self.sample is not None else "rewritten" if self.candidate else "option"
        return f"{self.prompt.type} {subject}"


class Retrieve(Step, frozen=True, kw_only=True, tag="retrieve"):
    """Search by BM25 the blocks that have left the trace's window, and the examples. Result: hits, best first."""

    result = list[Hit]

    query: str
    """In the syntax of trace/query.py."""
    before: int
    """Only blocks of this trace with an index below this one: blocks in the window are never retrieved."""
    top_k_hits: int = msgspec.field(name="considered")
    """Maximum number of hits."""
    least_score: float
    limit: int
    """Maximum number of hits in the result."""
    memory: float | None = None
    """Minimum score of hits from other traces. None: search this trace only."""
    memory_scope: Literal["job", "all"] = "job"
    """Which other traces: those of the job, or those of all jobs."""


Op = Literal[
    "bootstrap", "begin", "list", "run", "resume", "evaluate", "call", "tools", "tool", "trial", "try", "solve",
    "verify",
]  # fmt: skip


class Execute(Step, frozen=True, kw_only=True, tag="execute"):
    """Run an operation in the trace's environment."""

    result = Executed
    queue = "execute"
    """Once the environment has a host, the queue of that host: `execute.<host>`."""

    op: Op
    """bootstrap: execute the bootstrap file, then its action callback.
    begin: start a tick (forget the last tick's action and evaluations) and show every observation view.
    list: like begin, but name the views without showing them.
    run: execute a block; for an action, also the callback that it registered.
    resume: continue an action that waits for a subagent (`Executed.waits_for`), for other traces
    (`Executed.delegates`; `source` is then a JSON list of `Delegated`) or for a block (`Executed.writes`; `source` is
    then the block as a JSON object).
    evaluate: run the evaluations of the task and of the tick. The worker sets `source` for protected evaluations: a
    JSON object with their `titles`, and the variables to report as `claims`.
    call: call a function of box/calls.py; `source` is a JSON object with its name and arguments.
    `Executed.value` is then `{"success": true, "output": ...}` or `{"success": false, "error": ...}`.
    tools: list the tools of the MCP servers. `Executed.value` has by server `{"tools": JSON}` or
    `{"error": ...}`. The worker sets `source` to a JSON object with what is known already.
    tool: like call, but call a tool of the MCP server that `source` names too.
    trial: run programs in processes of their own, test and evaluate them; `source` is the JSON object that
    `evaluate_programs` in box/trial.py takes, `Executed.value` is its result.
    try: run each of `candidates` in a copy of the environment that leaves nothing behind; `Executed.trials` has the
    results. The worker sets `source` to their texts, as a JSON list.
    solve: run a Harbor task's own solution; `source` is the number of the task's step, from 0.
    verify: end the agent's processes and run the verifier of that step; `Executed.evaluations` has the rewards."""
    subagent: str = "main"
    """Whose tick it is."""
    type: BlockType | None = None
    source: str = ""
    candidates: tuple[tuple[int, int], ...] = ()
    """try: (ordinal of the Sample step, position) of each."""

    @property
    def summary(self) -> str:
        return self.op + (f" {self.type}" if self.type else "")


class RunSubagent(Step, frozen=True, kw_only=True, tag="work"):
    """Run a subagent's ticks until it returns or its time is up."""

    result = SubagentDone
    queue = None

    subagent: str
    minutes: float
    """Its time budget."""

    @property
    def summary(self) -> str:
        return f"subagent {self.subagent}"


class LookUp(Step, frozen=True, kw_only=True, tag="consult"):
    """Call a look-up tool, which only reads: the corpus, the job's documents, the tool library."""

    result = LookUpResult
    queue = "lint"

    tool: str
    arguments: dict[str, Any]

    @property
    def summary(self) -> str:
        return self.tool


class Delegate(Step, frozen=True, kw_only=True, tag="delegate"):
    """Have another agent do a task in a trace of its own, with a context of its own."""

    result = Delegated
    queue = None

    agent: str
    """A name of agents.AGENTS."""
    task: dict[str, Any]
    """The task, in the form that the agent's program defines."""
    label: str
    """For people: status lines, Flower."""

    @property
    def summary(self) -> str:
        return f"{self.agent}: {self.label}"


class AskHuman(Step, frozen=True, kw_only=True, tag="await"):
    """Ask the person who made the request, and wait for the answer without a limit."""

    result = HumanAnswer
    queue = None

    question: str


STEP_KINDS: dict[str, type[Step]] = {
    str(step.__struct_config__.tag): step
    for step in (Sample, Lint, Score, Retrieve, Execute, RunSubagent, LookUp, Delegate, AskHuman)
}
WAITS = tuple(kind for kind, step in STEP_KINDS.items() if step.queue is None)
"""Kinds of steps that no worker takes."""


class Append(Draft, frozen=True, kw_only=True):
    """Record a block. Its index, timestamp and drawn label are set when it is recorded."""

    began: float | None = None
    """When its writing began: the time in the header that the model read. None: now."""
    question: str | None = None
    yes: float | None = None
    """Probability of yes with which the label is drawn."""
    exception: str | None = None
    """Class of the exception, where the block did not run without errors."""
    candidate: tuple[int, int] | None = None
    """(ordinal of the Sample step, position) of the candidate that became this block."""
    score: float | None = None
    """Raw score: after rewriting, without penalties. Log odds."""
    tools: str | None = None
    """The tools that the model may call from here on, as a JSON list of their schemas. None: it says nothing."""
    executed: int | None = None
    """Ordinal of the Execute step that ran it."""
    tried: bool | None = None
    """Whether it ran without errors when it was tried."""


class Reward(Value, frozen=True, kw_only=True):
    """The reward of a tick, and the shares of its blocks."""

    reward: float | None
    """None: the tick has protected evaluations, and none of them was evaluated."""
    shares: dict[int, float]
    """By block index."""
    preferences: dict[int, float]
    """By block index: correction of the block's score in preference data (see agents/reward.py)."""
    protected: bool = False
    """Whether it counts protected evaluations only."""
    not_evaluated: int = 0
    """Protected evaluations that it leaves out because they were not evaluated."""


class Note(Value, frozen=True, kw_only=True):
    """An event in the trace's history, for people."""

    kind: str
    detail: str


class ToolSaved(Value, frozen=True, kw_only=True):
    """A tool for the library, or a new version of a tool in it; see store/tools.py."""

    name: str
    description: str
    signature: str
    """Its first line: `def name(...) -> ...`."""
    source: str
    tests: str = ""
    evaluator: str = ""
    score: float | None = None
    """The evaluator's score. None: it was not scored."""
    generality: float | None = None
    """Log odds that the tool serves other requests too. None: the model was not asked."""
    program: tuple[int, int] | None = None
    """(trace, number) of the program that became this tool, where a search found it."""


class ToolCalled(Value, frozen=True, kw_only=True):
    """A call of a tool of the library."""

    name: str
    version: int
    success: bool
    """Whether it returned a value."""


class ProgramEvaluated(Value, frozen=True, kw_only=True):
    """A program that a FunSearch has evaluated, for the table `programs`."""

    number: int
    """Number among all programs of the search, from 0, without gaps."""
    generation: int
    """0: the program that the search began with."""
    island: int | None = None
    """None: the program that the search began with."""
    parents: tuple[int, ...] = ()
    """Numbers of the programs in the model's prompt."""
    source: str
    score: float | None = None
    """None: it has none because of `error`."""
    signature: tuple[float, ...] = ()
    """Its score on each instance."""
    error: str | None = None
    candidate: tuple[int, int] | None = None
    """(ordinal of the Sample step, position) of the message that it was taken from."""


Effect = Append | Reward | Note | ToolSaved | ToolCalled | ProgramEvaluated


class Ended(Value, frozen=True, kw_only=True):
    """What a program returns at the end of a tick."""

    done: bool
    """Whether the agent is done. False: another tick follows."""
    returned: Any = None
    state: Any = None
    """A JSON value that the next tick receives as `Start.state`."""
    failed: str | None = None
    """Kind of failure (see errors.py), where the trace can't go on."""
    reason: str | None = None
