"""The task that answers an agent's question to a tool that only reads (weavegen/search/lookups)."""

from tasks.app import app
from tasks.worker import Done, work_on
from weavegen.kernel.steps import LookUp
from weavegen.search import lookups as tools
from weavegen.store.session import engine as database
from weavegen.store.steps import Claimed


@app.task(name="weavegen.consult")
def consult(step_id: int) -> str:
    """Look something up."""

    def work(held: Claimed) -> Done:
        step = held.step
        assert isinstance(step, LookUp)
        return Done(tools.consult(database(), held.trace_id, step.tool, step.arguments))

    return work_on(step_id, work)
