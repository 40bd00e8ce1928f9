"""The tables. Every table and column has a comment, which psql and schema browsers show to users.

Tables are imported from their modules; the states of rows, and the metadata of all tables, from here.
"""

from weavegen.store.models import blocks, campaigns, corpus, people, retrieval, servers, tools, traces, workers
from weavegen.store.models.campaigns import BatchStatus, CampaignState
from weavegen.store.models.columns import METADATA
from weavegen.store.models.people import RequestStatus
from weavegen.store.models.traces import JobState, StepStatus, TraceStatus

__all__ = [
    "METADATA", "BatchStatus", "CampaignState", "JobState", "RequestStatus", "StepStatus", "TraceStatus",
    "blocks", "campaigns", "corpus", "people", "retrieval", "servers", "tools", "traces", "workers",
]  # fmt: skip
