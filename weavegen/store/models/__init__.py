"""The tables. Every table and column has a comment, which psql and schema browsers show to users.

Tables are imported from their modules, and the metadata of all tables from here.
"""

from weavegen.store.models import blocks, campaigns, corpus, people, retrieval, servers, tools, traces, workers
from weavegen.store.models.columns import METADATA

__all__ = [
    "METADATA", "blocks", "campaigns", "corpus", "people", "retrieval", "servers", "tools", "traces", "workers",
]  # fmt: skip
