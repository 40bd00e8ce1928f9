"""The tables. Every table and column has a comment, which psql and schema browsers show to users."""

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
from weavegen.store.models.corpus import Release, ReleaseKeys, View
from weavegen.store.models.jobs import Bootstrap, Document, Job, JobDocument, JobSettings, JobState
from weavegen.store.models.journal import Environment, Step, StepStatus
from weavegen.store.models.messages import Channel, Exchange, Message
from weavegen.store.models.requests import Request, RequestChange, RequestStatus
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
from weavegen.store.models.servers import ModelServer, ModelUsage
from weavegen.store.models.tools import Tool, ToolUse, ToolVersion, TriedProgram
from weavegen.store.models.traces import Event, Subagent, Tick, Trace, TraceStatus

__all__ = [
    "Answer", "Base", "BatchStatus", "Block", "BlockTokens", "Bootstrap", "Campaign", "CampaignBatch",
    "CampaignItem", "CampaignState", "Candidate", "Channel", "CorpusPosting", "CorpusQueue",
    "CorpusSegment", "CorpusStatistics", "CorpusWord", "CorrectedQuestion", "Correction", "Document",
    "Environment", "Evaluation", "Event", "Example", "Exchange", "GroundedLabel", "Job", "JobDocument",
    "JobSettings", "JobState", "Message", "ModelRead", "ModelServer", "ModelUsage", "Numbers", "Penalties",
    "Posting", "Release", "ReleaseKeys", "Request", "RequestChange", "RequestStatus", "Retrieval",
    "RetrievalHit", "Score", "Segment", "Step", "StepStatus", "Subagent", "Tick", "Tool", "ToolUse",
    "ToolVersion", "Trace", "TraceStatus", "TriedProgram", "View", "table",
]  # fmt: skip
