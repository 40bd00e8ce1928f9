"""The work of an Execute step: run an operation in the trace's environment, which lives on this worker's host."""

import dataclasses
import json
import logging
import os
import time
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import psutil  # type: ignore[import-untyped]
from msgspec import structs

from weavegen import sql
from weavegen.box.mcp import MAX_CHARS, MAYBE_DONE
from weavegen.box.trying import OPERATIONS
from weavegen.channels.exchange import Exchange
from weavegen.database import Connection
from weavegen.engine import mcp_http
from weavegen.engine.worker import Done, Worker
from weavegen.errors import EnvironmentFailure, ImageFailure, TransientError, Unserved, UsageError
from weavegen.harbor.verifier import Verifier, evaluations_of, image_of, limits_of, root_of, task_files
from weavegen.kernel.packages import Packages
from weavegen.kernel.replay import encode
from weavegen.kernel.seeds import derive_seed
from weavegen.kernel.steps import Execute, Executed, Failure
from weavegen.pool.client import ModelClient
from weavegen.pool.tokens import Sampled
from weavegen.sandbox import packages, starting_files
from weavegen.sandbox.bubblewrap import require_bubblewrap
from weavegen.sandbox.client_session import BlockBrief, CompleteRequest, ToolRequest
from weavegen.sandbox.environment import Environment, last_kill_reason, remove
from weavegen.sandbox.grading import Grader, asked, protected, show_again
from weavegen.sandbox.image_root import Root
from weavegen.sandbox.providers import Limits, provider
from weavegen.sandbox.stopping import members, resume
from weavegen.store import candidates, environments, messages, steps, traces
from weavegen.store.session import database, single
from weavegen.store.steps import Claimed
from weavegen.store.traces import TraceSpec
from weavegen.variables import resolved, resolved_values

log = logging.getLogger(__name__)
MAX_DEATHS = 6
"""Deaths of a trace's environments; after one more the trace fails. A block that kills its process costs two."""
START_SECONDS = 60.0
"""Time limit for starting a box's MCP servers, unless operations may take longer, and for listing others' tools."""
STOPPED = "stopped"  # a file beside an agent's files: its box was stopped to verify them
POLL_SECONDS = 0.2  # time between checks for a person's message


def execute(worker: Worker, claim: Claimed, step: Execute) -> Done:
    """Find or start the environment and run the step in it. A step that ran there before is answered from memory."""
    with single().connect() as conn:
        spec = worker.engine.spec(conn, claim.trace_id, claim.revision)
    execution = Execution(worker, claim, spec)
    began = time.monotonic()
    try:
        executed = execution.run(step)
    except ImageFailure:  # no other step could run, and another attempt would build the image again
        raise
    except EnvironmentFailure as error:
        # Something outside may have killed the process. A block that kills its own process will do so again.
        try:
            executed = lost(str(error)) if execution.in_box(step) else execution.run(step)
        except EnvironmentFailure as error:
            if step.op not in ("run", "resume", "call", "tool", "try") or isinstance(error, ImageFailure):
                raise
            executed = Executed(not_tried=str(error)) if step.op == "try" else lost(str(error), "")
    seconds, model_seconds = time.monotonic() - began, execution.model_seconds

    def save(conn: Connection) -> None:
        environments.save_evaluations(conn, claim.trace_id, claim.id, claim.tick, executed.evaluations)
        environments.save_assertions(conn, claim.trace_id, claim.id, executed.assertions)
        sql.run(conn, "store/save_subagents", trace=claim.trace_id, subagents=executed.subagents)
        environments.save_trials(conn, claim.trace_id, claim.id, execution.tried, executed)

    return Done(executed, save, model_seconds=model_seconds, environment_seconds=seconds - model_seconds)


class Execution:
    """The environment of a claimed step's trace, and what its callbacks ask of the model, the corpus and people."""

    def __init__(self, worker: Worker, claim: Claimed, spec: TraceSpec) -> None:
        self.worker, self.claim, self.spec = worker, claim, spec
        self.trace_id = claim.trace_id
        limits = Limits() if spec.harbor_task is None else limits_of(spec.harbor_task)
        self.limits = dataclasses.replace(limits, seconds=spec.settings.callback_seconds)
        self.protected = protected(worker.config, spec.bootstrap)
        self.tried: list[int] = []
        """Ids of the candidates that the step tries."""
        self.model_seconds = 0.0
        """Time that the callbacks' questions took."""

    def run(self, step: Execute) -> Executed:
        """Run the claimed step in the environment, which is started or rebuilt first where necessary."""
        if step.op == "solve":
            self.record_place()
            ran = self.verifier(int(step.source)).solve(self.changes)
            return Executed(output=f"{ran.output}\n({ran.ended})" if ran.ended else ran.output, seconds=ran.seconds)
        if step.op == "verify":
            return self.verify(int(step.source))
        if self.claim.claims > 1 and self.in_box(step) and Environment.find(self.worker.config, self.trace_id) is None:
            return lost("the worker and the environment process died")
        environment = self.open_environment()
        if not self.protected or step.subagent != "main" or step.op not in ("evaluate", "begin", "list"):
            return self.run_in(environment, self.claim.id, step)
        resume(members(environment.handle))  # a worker may have been killed while it graded
        executed = self.run_in(environment, self.claim.id, step)
        with single().connect() as conn:
            before = steps.last_evaluated(conn, self.trace_id, self.claim.id)
        if step.op != "evaluate":
            return show_again(executed, before)
        spec, config = self.spec, self.worker.config
        grader = Grader(
            config, self.trace_id, self.limits, spec.bootstrap, spec.seed, spec.params, spec.settings.time_budget,
            before, self.packages(), self.files(),
        )  # fmt: skip
        return grader.grade(environment.handle, executed)

    def run_in(self, environment: Environment, step_id: int, step: Execute, until: object = None) -> Executed:
        """Run a step in an environment that sees the blocks recorded before the time `until` (None: all)."""
        if step.op == "bootstrap":  # the journal does not repeat the bootstrap's text
            step = Execute(op="bootstrap", source=self.spec.bootstrap)
        elif step.op == "try":
            return self.try_in(environment, step_id, step)
        elif step.op == "evaluate" and step.subagent == "main":
            step = Execute(op="evaluate", source=asked(self.protected))
        elif step.op == "tools" and not step.source:
            step = structs.replace(step, source=encode(self.list_tools()).decode())
            limits = dataclasses.replace(self.limits, seconds=max(self.limits.seconds, START_SECONDS))
            return self.ask_environment(environment, step_id, step, limits)
        return self.ask_environment(environment, step_id, step, self.limits.of(step.op), until)

    def try_in(self, environment: Environment, step_id: int, step: Execute) -> Executed:
        """Try candidates in copies of an environment, each with time for its block, the evaluations and the views."""
        place = (self.trace_id, self.claim.tick, self.claim.run)
        with single().connect() as conn:
            ordinals = {ordinal for ordinal, _ in step.candidates}
            found = {ordinal: candidates.load(conn, *place, ordinal, legal=True) for ordinal in ordinals}
        rows = [found[ordinal][position] for ordinal, position in step.candidates]
        self.tried = [row.id for row in rows]
        source = encode([row.legal for row in rows]).decode()
        limits = dataclasses.replace(self.limits, seconds=self.limits.seconds * OPERATIONS * len(rows))
        done = self.ask_environment(environment, step_id, structs.replace(step, source=source), limits)
        if self.protected and step.subagent == "main" and step.type == "action":
            # Of the task's evaluations only the protected ones count, and a copy runs them beside the candidate's code.
            done = structs.replace(done, trials=tuple(structs.replace(one, evaluations=()) for one in done.trials))
        return done

    def ask_environment(
        self, environment: Environment, step_id: int, step: Execute, limits: Limits, until: object = None
    ) -> Executed:
        def blocks_from(index: int) -> list[BlockBrief]:
            with single().connect() as conn:
                rows = sql.run(conn, "store/briefs_of_blocks", trace=self.trace_id, first=index, until=until)
                return [BlockBrief(*row) for row in rows]

        if until is None:
            limits = dataclasses.replace(limits, seconds=self.within_time(limits.seconds))
        chat, complete = partial(self.exchange_messages, step_id), partial(self.complete, step_id)
        tool = partial(self.call_tool, step_id, again=until is not None)
        return environment.execute(step_id, step, blocks_from, self.ask, limits, chat, complete, tool)

    def within_time(self, seconds: float) -> float:
        """At most the time that the agent of a Harbor task has left; but that of an ordinary operation in any case."""
        if self.spec.harbor is None:
            return seconds
        with single().connect() as conn:
            left = sql.run(conn, "store/seconds_left", trace=self.trace_id, tick=self.claim.tick).scalar_one()
        return min(seconds, max(float(left), Limits().seconds))

    def in_box(self, step: Execute) -> bool:
        """Whether a step calls a tool of a server that runs in the box."""
        return step.op == "tool" and self.spec.mcp_servers[json.loads(step.source)["server"]].command is not None

    def mcp_servers(self) -> dict[str, dict[str, Any] | None]:
        """The servers as box/mcp.py takes them, with the variables of this process."""
        found: dict[str, dict[str, Any] | None] = {}
        for name, server in self.spec.mcp_servers.items():
            args, env = [*map(resolved, server.args)], resolved_values(server.env)
            found[name] = {"command": resolved(server.command), "args": args, "env": env} if server.command else None
        return found

    def list_tools(self) -> dict[str, Any]:
        """The tools of the servers that the worker asks. Raises Unserved while nobody listens at an address."""
        found: dict[str, Any] = {}
        for name, server in sorted(self.spec.mcp_servers.items()):
            if server.command is None:
                room = MAX_CHARS - sum(len(listed.get("tools", "")) for listed in found.values())
                found[name] = mcp_http.list_tools(name, server, min(self.limits.seconds, START_SECONDS), room)
        return found

    def call_tool(self, step_id: int, wish: ToolRequest, *, again: bool) -> dict[str, Any]:
        """Call a tool of a server that the worker asks, once: a repeated request gets the answer of the first time.

        `again`: the step is over, and runs again to rebuild its environment.
        """
        server = self.spec.mcp_servers.get(wish.server)
        if server is None or server.command is not None:
            return {"error": f"there is no MCP server {wish.server!r:.100} that the worker asks"}
        try:
            arguments = msgspec.json.decode(wish.arguments, type=dict[str, Any])
        except (msgspec.DecodeError, RecursionError) as error:
            return {"error": f"the arguments are not a JSON object: {error}"}
        request = {"server": wish.server, "tool": wish.tool, "arguments": wish.arguments}
        with database().begin() as conn:
            before = messages.begin_call(conn, step_id, wish.turn, request, again=again)
        if before is not None:
            return before
        answer = mcp_http.call(wish.server, server, wish.tool, arguments, self.within_time(self.limits.seconds))
        with database().begin() as conn:
            sql.run(conn, "store/answer_exchange", step=step_id, turn=wish.turn, answer=answer)
        return answer

    def exchange_messages(self, step_id: int, wish: Exchange) -> dict[str, Any]:
        """Exchange messages of a step's callback with people."""
        deadline = time.monotonic() + wish.wait
        while True:
            with database().begin() as conn:
                answer = messages.exchange(conn, self.trace_id, step_id, wish, patient=time.monotonic() < deadline)
            if answer is not None:
                return answer
            time.sleep(POLL_SECONDS)

    def ask(self, prompts: list[str]) -> list[tuple[float, float]]:
        """The model's answers to yes/no questions."""
        began = time.monotonic()
        answers = self.worker.pools.call(
            self.claim,
            self.spec.judge,
            len(prompts),
            lambda client: client.yes_no(prompts, priority=self.trace_id),
            judges=self.spec.judged_by_another,
        )
        self.model_seconds += time.monotonic() - began
        return [(answer.yes, answer.no) for answer in answers]

    def complete(self, step_id: int, request: CompleteRequest) -> list[str]:
        """Texts with which the model continues a prompt of a callback. The same when the step is repeated."""
        began, claim, spec = time.monotonic(), self.claim, self.spec
        number = request.number if request.turn is None else request.turn
        with single().connect() as conn:
            place = sql.run(conn, "store/place_of_step", step=step_id).one()

        def sample(client: ModelClient) -> Sampled:
            return client.sample(
                request.prompt,
                n=request.n,
                max_tokens=request.max_tokens,
                temperature=request.temperature,
                top_k=spec.settings.top_k,
                repetition_penalty=spec.settings.repetition_penalty,
                seed=derive_seed(spec.seed, *place, "callback", number),
                stop=request.stop,
                priority=self.trace_id,
            )

        sampled = self.worker.pools.call(claim, spec.model, request.n, sample)
        self.model_seconds += time.monotonic() - began
        return [one.text for one in sampled.continuations]

    def record(self, conn: Connection, pid: int) -> None:
        """Record that the trace's environment is on this host. Raises TransientError: see `require_step`."""
        self.require_step(conn)
        host, sandbox = self.worker.config.host, self.worker.config.sandbox
        sql.run(conn, "store/environment_opened", trace=self.trace_id, host=host, pid=pid, sandbox=sandbox)

    def require_step(self, conn: Connection) -> None:
        """Raise TransientError unless this worker still holds the step: another host may have the environment."""
        if not steps.LEASES.renew(conn, [(self.claim.id, self.claim.claims)], self.worker.config.lease):
            raise TransientError("another worker holds the step, or it was cancelled")

    def open_environment(self) -> Environment:
        """The trace's environment: found, or started, or rebuilt after its death. Raises EnvironmentFailure."""
        config, trace_id, spec = self.worker.config, self.trace_id, self.spec
        environment = Environment.find(config, trace_id)
        with single().connect() as conn:
            place = environments.place(conn, trace_id)
            if environment and place == (config.host, environment.handle.pid):
                return environment
            self.require_step(conn)
            if place is not None and environment is None:  # else the trace went on elsewhere, while this host was away
                sql.run(conn, "store/environment_closed", trace=trace_id)
            past = steps.executed(conn, trace_id)
            deaths = int(sql.run(conn, "store/environment_deaths", trace=trace_id).scalar_one())
            deaths -= sum(step.op == "verify" for _, step, *_ in past)  # each of these stopped one
        cause = last_kill_reason(config, trace_id)
        if deaths > MAX_DEATHS:
            died = f"the environment process died {deaths} times"
            raise EnvironmentFailure(died + (f": {cause}" if cause else ""))
        folder = self.packages()
        # An unrecorded live process is removed too: the worker that started it was killed, perhaps during a rebuild.
        remove(config, trace_id)
        try:
            environment = Environment.start(
                config,
                trace_id,
                seed=spec.seed,
                params=spec.params,
                budget=spec.settings.time_budget,
                model_name=self.worker.pools.model_name(self.claim, spec.model),
                network=spec.network,
                packages=folder,
                files=self.files(),
                limits=None if self.spec.harbor is None else self.limits,
                root=self.root(),
                mcp_servers=self.mcp_servers(),
            )
        except (EnvironmentFailure, UsageError) as error:
            require_bubblewrap.cache_clear()
            try:
                provider(config.sandbox).require()
            except UsageError as reason:  # this host can't make any box now: that is no fault of the trace
                raise Unserved(f"on {config.host}: {reason}") from None
            if past and type(error) is EnvironmentFailure:  # the trace is able to start: this host may be overloaded
                raise TransientError(str(error)) from None
            raise
        self.rebuild(environment, past, cause)
        with single().connect() as conn:
            self.record(conn, environment.handle.pid)
            if spec.harbor is not None:  # neither building its image nor a rebuild counts as the agent's time
                sql.run(conn, "store/give_back_time", step=self.claim.id)
            if config.sandbox == "none":
                traces.event(conn, trace_id, "not isolated", "its code runs as the user who started the worker")
        return environment

    def packages(self) -> Path | None:
        """The folder with the job's packages. Raises Unserved, so that the step waits, if they can't be installed."""
        if (digest := self.spec.packages) is None:
            return None
        with single().connect() as conn:
            wanted = Packages(**sql.run(conn, "store/packages", sha256=digest).one()._asdict())
        try:
            return packages.on_this_host(self.worker.config, wanted)
        except UsageError as error:
            raise Unserved(f"on {self.worker.config.host}: {error}") from None

    def files(self) -> Path | None:
        """The folder with the files that /app begins with, on this host."""
        if (digest := self.spec.files) is None:
            return None
        return starting_files.unpacked(self.worker.config, digest, partial(archive, "store/starting_files", digest))

    @property
    def changes(self) -> Path:
        """The folder with the changes that a box has made to its image (sandbox/image_root.py)."""
        return self.worker.config.workspaces / str(self.trace_id) / "changes"

    def verifier(self, step: int) -> Verifier:
        """The verifier of a step of the trace's Harbor task, on this host, with the image, which is made if necessary.

        Raises EnvironmentFailure if the image can't be made. Raises Unserved while others are made, so that no more
        threads than builds are busy with images, and while the disk is full.
        """
        config, task, digest = self.worker.config, self.spec.harbor_task, self.spec.harbor
        assert task is not None
        assert digest is not None
        files = task_files(config, digest, partial(archive, "store/harbor_files", digest))
        image = image_of(config, task, files, images_in_use)
        return Verifier(config, self.trace_id, task, task.steps[step], image, files, self.spec.settings.network)

    def root(self) -> Root | None:
        """The root of the box of a Harbor task; None for other traces."""
        if self.spec.harbor_task is None:
            return None
        own = self.verifier(0)
        return root_of(own.config, own.task, own.image, own.step.agent, self.changes)

    def record_place(self) -> None:
        """Record that the trace's files are on this host, where they are removed when it has ended."""
        with single().connect() as conn:
            if environments.place(conn, self.trace_id) is None:
                self.record(conn, os.getpid())

    def verify(self, step: int) -> Executed:
        """End the agent's processes, and have the tests of a step run over what it has left."""
        verifier, config = self.verifier(step), self.worker.config
        if self.spec.agent in ("nop", "oracle"):  # they leave no process running
            self.record_place()
            if self.spec.agent == "oracle" and not self.changes.exists():  # those of another host, or removed
                for earlier in range(step + 1):
                    self.verifier(earlier).solve(self.changes)
            (self.changes / "upper").mkdir(parents=True, exist_ok=True)
        elif not self.has_stopped():
            self.open_environment().stop()
            (self.changes / STOPPED).touch()
        verdict = verifier.verify(self.changes / "upper", trusted=self.spec.agent == "oracle")
        if verdict.changed and verdict.cause is None:
            with single().connect() as conn:
                traces.event(conn, self.trace_id, "not shown to the tests", ", ".join(verdict.changed))
        log.info("trace %d: verified on %s in %.1f s", self.trace_id, config.host, verdict.seconds)
        return Executed(evaluations=evaluations_of(verdict), output=verdict.output)

    def has_stopped(self) -> bool:
        """Whether an earlier attempt at this step has stopped the box, and the files that the agent left are here.

        The steps that a rebuilt box repeats could leave other files. A restart of the host may have lost some.
        """
        config, mark = self.worker.config, self.changes / STOPPED
        with single().connect() as conn:
            place = environments.place(conn, self.trace_id)
        if place is None or place[0] != config.host or not mark.exists():
            return False
        return mark.stat().st_mtime > float(psutil.boot_time()) and Environment.find(config, self.trace_id) is None

    def rebuild(
        self, environment: Environment, past: list[tuple[int, Execute, Executed, Any]], cause: str | None
    ) -> None:
        """Run again, in an empty workspace, all steps that the trace's last environment ran; record divergent results.

        `cause`: why that one was killed, if known. Skips steps that killed their process, trials of programs, and
        calls of MCP servers that may have had effects outside the box. Equal seeds make equal processes, as far
        as the trace's code is deterministic.
        """
        divergent = []
        for id, step, result, claimed_at in past:
            # A step that only ran out of time has the stage "process" too, and what it did stayed.
            killed = result.error is not None and result.error.type == "EnvironmentFailure"
            if killed or step.op in ("trial", "try", "verify"):  # they leave nothing behind
                continue
            if self.in_box(step) and self.spec.network == "host":  # what it did may be outside the box
                divergent.append(str(id))
                continue
            if step.op == "tools":
                step = structs.replace(step, source=encode(result.value).decode())
            if comparable(self.run_in(environment, id, step, until=claimed_at)) != comparable(result):
                divergent.append(str(id))
        if not past:
            return
        outcome = f"steps {', '.join(divergent)} came out otherwise" if divergent else "all came out as before"
        outcome += f"; the last one was killed: {cause}" if cause else ""
        log.warning("trace %d: environment rebuilt, %d steps done again, %s", self.trace_id, len(past), outcome)
        with single().connect() as conn:
            traces.event(conn, self.trace_id, "environment rebuilt", f"{len(past)} steps done again: {outcome}")


def lost(why: str, more: str = "; " + MAYBE_DONE) -> Executed:
    """The result of a step whose process died while it ran."""
    why += more
    return Executed(error=Failure(type="EnvironmentFailure", message=why, traceback=why, stage="process"))


def comparable(executed: Executed) -> object:
    """The parts of a result that two runs of one step must share to count as equal."""
    return (
        None if executed.error is None else executed.error.type,
        executed.waits_for,
        executed.delegates,
        executed.writes,
        executed.added,
        executed.registered,
        executed.value,
        executed.views,
        # Protected evaluations do not come from the environment, and are not run again.
        [(one.title, one.value, one.error is None) for one in executed.evaluations if not one.protected],
    )


def archive(query: str, digest: str) -> bytes:
    """The archive of files with this hash, by one of the queries for them."""
    with single().connect() as conn:
        return bytes(sql.run(conn, query, sha256=digest).scalar_one())


def images_in_use() -> set[str]:
    """The images that open traces need, by name."""
    with single().connect() as conn:
        return set(sql.run(conn, "store/images_in_use").scalars())


def close(worker: Worker, trace_id: int) -> str:
    """Stop the environment of a trace that has ended, and remove its workspace."""
    remove(worker.config, trace_id)
    with single().connect() as conn:
        sql.run(conn, "store/environment_closed", trace=trace_id)
    return "closed"
