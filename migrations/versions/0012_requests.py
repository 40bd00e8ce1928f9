"""Requests of users, and the library of tools that were made for them."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0012"
down_revision: str | Sequence[str] | None = "0011"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    op.create_table(
        "requests",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False, comment="Identity."),
        sa.Column("asked_by", sa.Text(), nullable=False, comment="The user."),
        sa.Column("objective", sa.Text(), nullable=False, comment="What is to be achieved."),
        sa.Column(
            "requirements",
            postgresql.JSONB(none_as_null=True),
            nullable=False,
            comment="What the result must be or have, a text each.",
        ),
        sa.Column(
            "constraints",
            postgresql.JSONB(none_as_null=True),
            nullable=False,
            comment="What must not be done, and within which bounds, a text each.",
        ),
        sa.Column(
            "revision",
            sa.BigInteger(),
            server_default="0",
            nullable=False,
            comment="How often the user has changed what is asked for.",
        ),
        sa.Column(
            "status",
            sa.Text(),
            server_default="NOT_STARTED",
            nullable=False,
            comment="NOT_STARTED, IN_PROGRESS, WAITING_FEEDBACK, SUCCEEDED, FAILED or CANCELED.",
        ),
        sa.Column("question", sa.Text(), nullable=True, comment="What it waits to be told; null: it does not wait."),
        sa.Column(
            "result",
            sa.Text(),
            nullable=True,
            comment="What came of it; null before it is over, and where nothing did.",
        ),
        sa.Column(
            "trace_id", sa.BigInteger(), nullable=True, comment="The trace that works on it; of several tries the last."
        ),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When it was made.",
        ),
        sa.CheckConstraint("(question is not null) = (status = 'WAITING_FEEDBACK')", name=op.f("ck_requests_question")),
        sa.CheckConstraint(
            "status in ('NOT_STARTED', 'IN_PROGRESS', 'WAITING_FEEDBACK', 'SUCCEEDED', 'FAILED', 'CANCELED')",
            name=op.f("ck_requests_status"),
        ),
        sa.ForeignKeyConstraint(["trace_id"], ["traces.id"], name=op.f("fk_requests_trace_id"), ondelete="SET NULL"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_requests")),
        sa.UniqueConstraint("trace_id", name=op.f("uq_requests_trace_id")),
        comment="What users ask the toolsmith for (`weavegen request`), as it stands.",
    )
    op.create_index("ix_requests_asked_by", "requests", ["asked_by"], unique=False)
    op.create_index(
        "ix_requests_open",
        "requests",
        ["id"],
        unique=False,
        postgresql_where=sa.text("status in ('NOT_STARTED', 'IN_PROGRESS', 'WAITING_FEEDBACK')"),
    )
    op.create_table(
        "request_changes",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False, comment="Identity."),
        sa.Column("request_id", sa.BigInteger(), nullable=False, comment="Its request."),
        sa.Column(
            "at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When it happened.",
        ),
        sa.Column(
            "what",
            sa.Text(),
            nullable=False,
            comment="created, updated, answered, canceled: by the user; status: its trace went on.",
        ),
        sa.Column("status", sa.Text(), nullable=False, comment="Its status from then on."),
        sa.Column(
            "reason",
            sa.Text(),
            nullable=False,
            comment="Why: what the user said, what was asked or came of it, why it failed.",
        ),
        sa.Column(
            "changed",
            postgresql.JSONB(none_as_null=True),
            nullable=True,
            comment="Of created and updated: objective, requirements and constraints as they are from then on.",
        ),
        sa.CheckConstraint(
            "status in ('NOT_STARTED', 'IN_PROGRESS', 'WAITING_FEEDBACK', 'SUCCEEDED', 'FAILED', 'CANCELED')",
            name=op.f("ck_request_changes_status"),
        ),
        sa.ForeignKeyConstraint(
            ["request_id"], ["requests.id"], name=op.f("fk_request_changes_request_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_request_changes")),
        comment="Every change of every request, with its reason. Rows are never changed.",
    )
    op.create_index(op.f("ix_request_changes_request_id"), "request_changes", ["request_id"], unique=False)
    op.create_table(
        "tools",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False, comment="Identity."),
        sa.Column("name", sa.Text(), nullable=False, comment="Name of the function."),
        sa.Column("description", sa.Text(), nullable=False, comment="What it does, by its newest version."),
        sa.Column(
            "signature", sa.Text(), nullable=False, comment="Its newest version's first line: `def name(...) -> ...`."
        ),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When it was first made.",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tools")),
        sa.UniqueConstraint("name", name=op.f("uq_tools_name")),
        comment="Functions that agents have made, to be used again; found by BM25.",
    )
    op.create_table(
        "tool_versions",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False, comment="Identity."),
        sa.Column("tool_id", sa.BigInteger(), nullable=False, comment="Its tool."),
        sa.Column("version", sa.BigInteger(), nullable=False, comment="Among the tool's, from 1."),
        sa.Column("source", sa.Text(), nullable=False, comment="Python source that defines the function."),
        sa.Column(
            "tests",
            sa.Text(),
            nullable=False,
            comment="Source of test(function), which it has passed; empty: it has none.",
        ),
        sa.Column(
            "evaluator",
            sa.Text(),
            nullable=False,
            comment="Source of evaluate(function), which has scored it; empty: nothing has.",
        ),
        sa.Column(
            "score",
            sa.Double(),
            nullable=True,
            comment="What the evaluator gave it, more is better; null: it was not scored.",
        ),
        sa.Column(
            "generality",
            sa.Double(),
            nullable=True,
            comment="How well it serves other requests, too, as the model judged its signature: log odds; null: not asked.",
        ),
        sa.Column("made_by", sa.BigInteger(), nullable=True, comment="The toolsmith's trace that had it made."),
        sa.Column(
            "searched_by",
            sa.BigInteger(),
            nullable=True,
            comment="The trace in which its programs were searched (programs.trace_id).",
        ),
        sa.Column("program", sa.BigInteger(), nullable=True, comment="Number of the program there that it is."),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When it was made.",
        ),
        sa.ForeignKeyConstraint(["made_by"], ["traces.id"], name=op.f("fk_tool_versions_made_by"), ondelete="SET NULL"),
        sa.ForeignKeyConstraint(
            ["searched_by"], ["traces.id"], name=op.f("fk_tool_versions_searched_by"), ondelete="SET NULL"
        ),
        sa.ForeignKeyConstraint(["tool_id"], ["tools.id"], name=op.f("fk_tool_versions_tool_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tool_versions")),
        sa.UniqueConstraint("tool_id", "version", name=op.f("uq_tool_versions_tool_id_version")),
        comment="The versions of tools. Rows are never changed; the newest is the one that is used.",
    )
    op.create_index(op.f("ix_tool_versions_made_by"), "tool_versions", ["made_by"], unique=False)
    op.create_index(op.f("ix_tool_versions_searched_by"), "tool_versions", ["searched_by"], unique=False)
    op.create_table(
        "tool_uses",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False, comment="Identity."),
        sa.Column("tool_version_id", sa.BigInteger(), nullable=False, comment="The version called."),
        sa.Column("trace_id", sa.BigInteger(), nullable=False, comment="The trace that called it."),
        sa.Column("success", sa.Boolean(), nullable=False, comment="Whether it came back with a value."),
        sa.Column("at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False, comment="When."),
        sa.ForeignKeyConstraint(
            ["tool_version_id"], ["tool_versions.id"], name=op.f("fk_tool_uses_tool_version_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["trace_id"], ["traces.id"], name=op.f("fk_tool_uses_trace_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tool_uses")),
        comment="Each call of a tool of the library, and whether it worked.",
    )
    op.create_index(op.f("ix_tool_uses_tool_version_id"), "tool_uses", ["tool_version_id"], unique=False)
    op.create_index(op.f("ix_tool_uses_trace_id"), "tool_uses", ["trace_id"], unique=False)


def downgrade() -> None:
    for name in ("tool_uses", "tool_versions", "tools", "request_changes", "requests"):
        op.drop_table(name)
