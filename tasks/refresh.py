"""The task that keeps the materialised views from ageing (weavegen/store/views/refresh.py)."""

from tasks.app import app
from weavegen.store.session import engine as database
from weavegen.store.views.refresh import refresh_next


@app.task(name="weavegen.refresh")
def refresh() -> str:
    """Fill the views anew that are due. Beat sends it every minute."""
    done = []
    with database().connect() as conn:
        while (one := refresh_next(conn)) is not None:
            done.append(one.view)
    return f"refreshed: {', '.join(done) or 'nothing'}"
