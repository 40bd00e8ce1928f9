"""The execute worker as it runs in a container: at its end it passes its traces to other workers."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.support import ROOT, TICTACTOE
from tests.support.installation import Installation
from tests.support.waiting import until
from weavegen.services import fleet, model_server, redis
from weavegen.store import urls

OPEN = "select count(*) from environments where host = 'pod-7' and closed_at is null"


def test_a_pod_that_ends_passes_its_traces_to_others(installation: Installation) -> None:
    here = installation
    home = Path(tempfile.mkdtemp(prefix="weavegen-pod-"))
    environ = here.environ | {
        "WEAVEGEN_HOME": str(home),
        "WEAVEGEN_HOST": "pod-7",
        "WEAVEGEN_DRAIN": "2",
        "DATABASE_URL": urls.database_url(here.config),
        "CELERY_BROKER_URL": redis.broker_url(here.config),
        "OPENAI_BASE_URL": model_server.urls(here.config)[0],
        "PATH": f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}",
    }
    pod = subprocess.Popen([ROOT / "deploy" / "execute-worker.sh", "4"], env=environ, cwd=home)
    try:
        until(lambda: "execute@pod-7" in fleet.answering(here.config))
        job = here.json("enqueue", TICTACTOE, "-n", "8", "--ticks", "30", "--seed", "2")["job"]
        until(lambda: here.sql(OPEN)[0][0] > 0)
        pod.terminate()
        assert pod.wait(40) == 0
        assert here.sql(OPEN)[0][0] == 0
        here.json("retune", str(job), "ticks=2")
        here.wait(job)
        assert here.sql("select distinct status::text from traces where job_id = :job", job=job) == [("ended",)]
        rebuilt = """
            select count(*) from events where kind = 'environment rebuilt'
            and trace_id in (select id from traces where job_id = :job)
            """
        assert here.sql(rebuilt, job=job)[0][0] > 0
    finally:
        if pod.poll() is None:
            pod.kill()
        shutil.rmtree(home, ignore_errors=True)
