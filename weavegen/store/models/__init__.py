"""The tables. Comments on every table and column are what psql and schema browsers show to users."""

from weavegen.store.models.base import Base, Numbers, table
from weavegen.store.models.blocks import Block, BlockTokens, Evaluation, GroundedLabel
from weavegen.store.models.campaigns import (
    Answer,
    BatchStatus,
    Campaign,
    CampaignBatch,
    CampaignItem,
    CampaignState,
    CorrectedQuestion,
    Correction,
)
from weavegen.store.models.candidates import Candidate, ModelRead, Penalties, Score
from weavegen.store.models.corpus import View
from weavegen.store.models.jobs import Bootstrap, Job, JobSettings, JobState
from weavegen.store.models.journal import Environment, Step, StepStatus
from weavegen.store.models.messages import Channel, Exchange, Message
from weavegen.store.models.releases import Release, ReleaseKeys
from weavegen.store.models.retrieval import (
    CorpusPosting,
    CorpusQueue,
    CorpusSegment,
    CorpusStatistics,
    CorpusWord,
    Example,
    Posting,
    Retrieval,
    RetrievalHit,
    Segment,
)
from weavegen.store.models.traces import Event, Subagent, Tick, Trace, TraceStatus

__all__ = [
    "Answer",
    "Base",
    "BatchStatus",
    "Block",
    "BlockTokens",
    "Bootstrap",
    "Campaign",
    "CampaignBatch",
    "CampaignItem",
    "CampaignState",
    "Candidate",
    "Channel",
    "CorpusPosting",
    "CorpusQueue",
    "CorpusSegment",
    "CorpusStatistics",
    "CorpusWord",
    "CorrectedQuestion",
    "Correction",
    "Environment",
    "Evaluation",
    "Event",
    "Example",
    "Exchange",
    "GroundedLabel",
    "Job",
    "JobSettings",
    "JobState",
    "Message",
    "ModelRead",
    "Numbers",
    "Penalties",
    "Posting",
    "Release",
    "ReleaseKeys",
    "Retrieval",
    "RetrievalHit",
    "Score",
    "Segment",
    "Step",
    "StepStatus",
    "Subagent",
    "Tick",
    "Trace",
    "TraceStatus",
    "View",
    "table",
]
