"""The members of the pool: the servers of the configuration, and those that people lend."""

from collections.abc import Mapping
from dataclasses import dataclass

from weavegen.config import Config
from weavegen.database import Connection
from weavegen.errors import UsageError
from weavegen.services import model_server
from weavegen.store import servers


@dataclass(frozen=True)
class Members:
    """The servers of the pool by base URL, those of the configuration first."""

    keys: Mapping[str, str]
    """The API key that each server is sent."""
    owners: Mapping[str, str]
    """Who lends each server. Servers of the configuration have no owner."""

    def require(self) -> None:
        """Raise UsageError where the pool has no server."""
        if not self.keys:
            raise UsageError(
                "no model server: set OPENAI_BASE_URL, start a small one with `weavegen up`, or add one with "
                "`weavegen pool add URL`"
            )


def members(conn: Connection, config: Config) -> Members:
    """The current members. Lent servers are not sent OPENAI_API_KEY, which belongs to the configured servers."""
    try:
        configured = model_server.urls(config)
    except UsageError:  # there is none
        configured = []
    owners = {server.url: server.owner for server in servers.servers(conn) if server.url not in configured}
    keys = dict.fromkeys(configured, config.api_key) | dict.fromkeys(owners, config.pool_key)
    return Members(keys, owners)
