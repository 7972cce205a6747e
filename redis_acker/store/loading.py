"""Brings the scripts to the servers. A server that restarts, or takes over from another, knows none of them.

Executors may run scripts but not load any, so that they can run no others. Whoever may load them does it for all.
"""

from __future__ import annotations

from dataclasses import dataclass

import redis
from redis import exceptions as redis_errors

from redis_acker.errors import ScriptsMissing
from redis_acker.store.connect import Servers
from redis_acker.store.scripts import Script, every_script


@dataclass(frozen=True)
class Loaded:
    """What a server did not know, and has been given."""

    server: str
    scripts: int
    error: Exception | None = None
    """Why the scripts are not there."""


class Loader:
    """Loads scripts as long as this user may."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._may_load = True

    def load(self, client: redis.Redis, scripts: list[Script]) -> bool:
        """False if this user may not. Raises what redis-py raises if the server cannot be reached."""
        if self._may_load:
            try:
                for one in scripts:
                    client.execute_command("SCRIPT LOAD", one.source)
            except redis_errors.NoPermissionError:
                self._may_load = False  # asking again would only fill the server's ACL log
        return self._may_load

    def load_everywhere(self) -> list[Loaded]:
        """Loads all scripts on each server that does not know them."""
        if not self._may_load:
            return []
        try:
            nodes = self._servers.nodes()
        except (redis.RedisError, redis_errors.RedisClusterException, OSError) as error:
            return [Loaded(self._servers.describe(0), 0, error)]
        return [self._complete(server, client) for server, client in nodes]

    def _complete(self, server: str, client: redis.Redis) -> Loaded:
        scripts = every_script()
        try:
            known = client.execute_command("SCRIPT EXISTS", *(one.sha for one in scripts))
            missing = [one for one, is_known in zip(scripts, known, strict=True) if not is_known]
            if not self.load(client, missing):
                return Loaded(server, 0, redis_errors.NoPermissionError("this user may not load scripts"))
        except redis_errors.NoPermissionError as error:
            self._may_load = False
            return Loaded(server, 0, error)
        except (redis.RedisError, OSError) as error:
            return Loaded(server, 0, error)
        return Loaded(server, len(missing))


def scripts_missing(server: str, script: str, within_s: float) -> ScriptsMissing:
    return ScriptsMissing(
        f"{server} does not know the script {script!r}, this user may not load it, and nobody else did within "
        f"{within_s:g} s: start a rotator or a driver of this version, or run `redis-acker scripts load` as a user who "
        "may load scripts."
    )
