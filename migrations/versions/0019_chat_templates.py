"""Chat templates: recorded with each job, no longer settings."""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision: str = "0019"
down_revision: str | Sequence[str] | None = "0018"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

DEFAULTS = {
    "prompt_open": "<s> [INST] ",
    "prompt_close": " [/INST]",
    "message_open": "<|im_start|>{role}\n",
    "message_close": "<|im_end|>\n",
}
"""The settings that described the template until now."""


def upgrade() -> None:
    op.create_table(
        "templates",
        sa.Column("id", sa.BigInteger(), sa.Identity(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("texts", JSONB(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_templates")),
        sa.UniqueConstraint("sha256", name=op.f("uq_templates_sha256")),
    )
    op.add_column("jobs", sa.Column("template_id", sa.BigInteger(), nullable=True))
    op.create_foreign_key(op.f("fk_jobs_template_id_templates"), "jobs", "templates", ["template_id"], ["id"])
    keep_templates(op.get_bind())


def keep_templates(conn: sa.Connection) -> None:
    """Record the template of each job that has asked a model or names a template, and drop the settings."""
    jobs = conn.execute(sa.text("select id, model, settings from jobs order by id")).all()
    for job in jobs:
        named = {name: job.settings[name] for name in DEFAULTS if name in job.settings}
        if job.model is not None or named:
            values = {"job": job.id, "template": template_id(conn, DEFAULTS | named)}
            conn.execute(sa.text("update jobs set template_id = :template where id = :job"), values)
    for table in ("jobs", "job_settings"):
        drop = (
            f"update {table} set settings = settings - cast(:names as text[]) where settings ?| cast(:names as text[])"
        )
        conn.execute(sa.text(drop), {"names": list(DEFAULTS)})
    delegates(conn)


def delegates(conn: sa.Connection) -> None:
    """Drop them from the settings of delegated traces, too."""
    for table, key in (("jobs", "id"), ("job_settings", "job_id, revision")):
        query = f"select {key}, settings from {table} where settings ? 'delegates'"
        for row in conn.execute(sa.text(query)).mappings().all():
            settings = dict(row["settings"])
            settings["delegates"] = {
                agent: {name: value for name, value in own.items() if name not in DEFAULTS}
                for agent, own in settings["delegates"].items()
            }
            where = " and ".join(f"{column} = :{column}" for column in key.split(", "))
            values = {column: row[column] for column in key.split(", ")} | {"settings": json.dumps(settings)}
            conn.execute(sa.text(f"update {table} set settings = cast(:settings as jsonb) where {where}"), values)


def template_id(conn: sa.Connection, settings: dict[str, Any]) -> int:
    """The template that these settings described."""

    def opening(role: str) -> str:
        return str(settings["message_open"]).replace("{role}", role)

    close = settings["message_close"]
    texts = {
        "block_open": settings["prompt_open"],
        "block_close": settings["prompt_close"],
        "first_system": opening("system"),
        "after_system": close,
        "system_in_user": False,
        "first_user": opening("user"),
        "user_open": opening("user"),
        "user_close": close,
        "assistant_open": opening("assistant"),
        "reply_open": opening("assistant"),
        "assistant_close": close,
        "bos": True,
    }
    digest = hashlib.sha256(
        json.dumps(texts, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    ).hexdigest()
    insert = """
        insert into templates (sha256, texts) values (:sha256, cast(:texts as jsonb))
        on conflict (sha256) do update set sha256 = excluded.sha256 returning id
    """
    return int(conn.execute(sa.text(insert), {"sha256": digest, "texts": json.dumps(texts)}).scalar_one())


def downgrade() -> None:
    op.drop_column("jobs", "template_id")
    op.drop_table("templates")
