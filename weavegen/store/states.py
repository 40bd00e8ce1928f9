"""The states of rows. Each is stored as its text; the schema allows no other text."""

import enum


class JobState(enum.StrEnum):
    """active ⇄ paused, draining, as people set it. It does not say whether the traces are over."""

    ACTIVE = "active"
    PAUSED = "paused"
    """No step of its traces is claimed."""
    DRAINING = "draining"
    """None of its queued traces starts."""


class TraceStatus(enum.StrEnum):
    """queued → running → ended | failed | cancelled; queued → cancelled."""

    QUEUED = "queued"
    RUNNING = "running"
    ENDED = "ended"
    FAILED = "failed"
    CANCELLED = "cancelled"


class StepStatus(enum.StrEnum):
    """ready → running → done | failed; running → ready when the lease expires; any → void when it is withdrawn."""

    READY = "ready"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    VOID = "void"


class CampaignState(enum.StrEnum):
    """active ⇄ stopped, as people set it. A campaign is over when all its batches are done."""

    ACTIVE = "active"
    STOPPED = "stopped"
    """None of its batches is sent or claimed."""


class BatchStatus(enum.StrEnum):
    """waiting → sent → running → done; sent and running → waiting when nobody claims it, or its lease expires."""

    WAITING = "waiting"
    SENT = "sent"
    RUNNING = "running"
    DONE = "done"


class RequestStatus(enum.StrEnum):
    """NOT_STARTED → IN_PROGRESS ⇄ WAITING_FEEDBACK; IN_PROGRESS → SUCCEEDED | FAILED. See store/requests.py."""

    NOT_STARTED = "NOT_STARTED"
    IN_PROGRESS = "IN_PROGRESS"
    WAITING_FEEDBACK = "WAITING_FEEDBACK"
    """It has asked the user something and waits without a time limit."""
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELED = "CANCELED"
