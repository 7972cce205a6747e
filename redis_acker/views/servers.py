"""The servers behind a namespace: whether they answer, how fast, and what they say about themselves.

Nothing here raises for what a server does: a managed service may forbid a command, and one server of several may be
down. What could not be found out is None, or empty.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import redis
from redis.sentinel import SentinelConnectionPool

from redis_acker.store.connect import Servers
from redis_acker.store.transport import DENIED, TROUBLE, why

PINGS = 3
"""The fastest of these counts as the latency: the others say more about this machine."""


@dataclass(frozen=True)
class ServerView:
    """One server at one moment."""

    address: str
    shards: tuple[int, ...]
    """Which shards it holds."""
    error: str | None = None
    """Why it could not be reached, or refused access; nothing else is known then."""
    is_denied: bool = False
    """Whether it answered, and refused this user."""
    latency_ms: float | None = None
    clock_ms: float | None = None
    """How far its clock is ahead of this machine's."""
    info: dict[str, Any] = field(default_factory=dict)
    """INFO as the server gives it; empty where this user may not ask."""
    script_times: dict[int, int] = field(default_factory=dict)
    """Calls of scripts, of all programs: bound in microseconds -> how many took no longer. Empty where the server keeps
    none (before Redis 7.0), or this user may not ask."""

    @property
    def version(self) -> str | None:
        """For example 'Redis 7.0.15' or 'Valkey 9.1.0'."""
        if "valkey_version" in self.info:
            return f"Valkey {self.info['valkey_version']}"
        return f"Redis {self.info['redis_version']}" if "redis_version" in self.info else None

    @property
    def used_memory(self) -> int | None:
        return _whole(self.info.get("used_memory"))

    @property
    def max_memory(self) -> int | None:
        """None if there is no limit, or it is unknown."""
        return _whole(self.info.get("maxmemory")) or None

    @property
    def is_full(self) -> bool:
        """Whether it refuses new roots because its memory is full, as far as it says."""
        return bool(self.used_memory and self.max_memory and self.used_memory >= self.max_memory)


def read_servers(servers: Servers, shards: Iterable[int]) -> list[ServerView]:
    """Looks at every server that holds one of the shards."""
    views: list[ServerView] = []
    for client, address, held in clients_of(servers, shards):
        views.append(_look(client, address, held) if client else ServerView(address, held, error="cannot be found"))
    return views


def clients_of(servers: Servers, shards: Iterable[int]) -> list[tuple[redis.Redis | None, str, tuple[int, ...]]]:
    """The distinct servers of some shards: client (None if not found), address without password, shards."""
    found: dict[str, tuple[redis.Redis | None, list[int]]] = {}
    for shard in shards:
        try:
            client: redis.Redis | None = servers.client(shard)
            address = address_of(servers, shard)
        except TROUBLE:
            client, address = None, plain_address(servers.describe(shard))
        found.setdefault(address, (client, []))[1].append(shard)
    return [(client, address, tuple(held)) for address, (client, held) in found.items()]


def address_of(servers: Servers, shard: int) -> str:
    """Where a shard is, short enough for a table."""
    pool = servers.client(shard).connection_pool
    if isinstance(pool, SentinelConnectionPool):
        return f"sentinel:{pool.service_name}"
    kwargs = pool.connection_kwargs
    return kwargs.get("path") or f"{kwargs.get('host', 'localhost')}:{kwargs.get('port', 6379)}"


def plain_address(description: str) -> str:
    """What Servers.describe says, without its article."""
    return description.partition(" ")[2].partition(" ")[2] or description


def _look(client: redis.Redis, address: str, shards: tuple[int, ...]) -> ServerView:
    try:
        latency_ms = min(_ping_ms(client) for _ in range(PINGS))
    except TROUBLE as error:
        return ServerView(address, shards, error=why(error), is_denied=isinstance(error, DENIED))
    return ServerView(
        address,
        shards,
        latency_ms=latency_ms,
        clock_ms=_clock_ms(client),
        info=ask(client, "INFO") or {},
        script_times=_script_times(client),
    )


def ask(client: redis.Redis, *command: str) -> Any:
    """The reply, or None where the server refuses the command or does not know it."""
    try:
        return client.execute_command(*command)
    except TROUBLE:
        return None


def _ping_ms(client: redis.Redis) -> float:
    start = time.perf_counter()
    client.execute_command("PING")
    return (time.perf_counter() - start) * 1000


def _clock_ms(client: redis.Redis) -> float | None:
    before = time.time()
    reply = ask(client, "TIME")
    if reply is None:
        return None
    here = (before + time.time()) / 2
    return (int(reply[0]) + int(reply[1]) / 1e6 - here) * 1000


def _script_times(client: redis.Redis) -> dict[int, int]:
    """The server's histogram of EVALSHA. Its bounds are those that were met, powers of two."""
    by_command = _pairs(ask(client, "LATENCY", "HISTOGRAM", "evalsha"))
    bounds = _pairs(_pairs(by_command.get("evalsha")).get("histogram_usec"))
    return {int(bound): int(count) for bound, count in bounds.items()}


def _pairs(reply: Any) -> dict[Any, Any]:
    """A flat list of RESP2 or a map of RESP3 as a dict, with names as text."""
    pairs = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True) if reply else ()
    return {name.decode() if isinstance(name, bytes) else name: value for name, value in pairs}


def _whole(value: object) -> int | None:
    return int(value) if isinstance(value, (int, float, str)) and str(value).isdigit() else None
