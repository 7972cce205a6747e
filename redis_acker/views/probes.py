"""Quick answers for probes: can every shard be reached, and can the namespace take work?

Imports neither numpy nor the other views: a probe may start every few seconds.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import redis

from redis_acker.errors import AckerError, ServerUnavailable, Unreadable
from redis_acker.store.connect import Target, open_servers
from redis_acker.store.hashes import number_of
from redis_acker.store.keys import MAX_SHARDS, ShardKeys, key_prefix
from redis_acker.store.shards_plain import ms_of
from redis_acker.store.transport import TROUBLE, denied, is_denied, unavailable

PATIENCE_MS = 5_000
"""A rotation that is late by less means nothing yet: it may wait for a drain, or ticks are short."""

T = TypeVar("T")


def is_overdue(due_in_ms: int, tick_ms: int) -> bool:
    """Whether a rotation is so late that no rotator seems to run: by more than a tick, and more than a moment."""
    return -due_in_ms > max(tick_ms, PATIENCE_MS)


@dataclass(frozen=True)
class Reached:
    """Every shard can be reached."""

    servers: int
    shards: int | None
    """None where the namespace does not exist."""


@dataclass(frozen=True)
class Readiness:
    """Whether the namespace can take work: it can if there are no problems."""

    servers: int
    shards: int
    """0 where the namespace does not exist."""
    problems: list[str]


class Probe:
    """Asks the servers of a namespace, and gives up after a time, whatever takes so long."""

    def __init__(self, target: Target | Sequence[Target] | None, namespace: str, *, timeout_s: float) -> None:
        self._namespace, self._timeout_s = namespace, timeout_s
        self._servers = open_servers(target, lambda shard: key_prefix(namespace, shard))
        self._asked = 0

    def __enter__(self) -> Probe:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._servers.close()

    def reach(self) -> Reached:
        """Pings the server of every shard. Raises ServerUnavailable or AccessDenied, with the server's name."""
        return self._in_time(self._reach)

    def readiness(self) -> Readiness:
        """Looks at every shard: is it there, does its server have memory left, is its rotation on time?"""
        return self._in_time(self._readiness)

    def _in_time(self, job: Callable[[], T]) -> T:
        """Leaves the job to its daemon thread when time is up: a socket's timeout would not cover a name server that
        hangs."""
        results: list[T] = []
        errors: list[BaseException] = []

        def run() -> None:
            try:
                results.append(job())
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(self._timeout_s)
        if results:
            return results[0]
        if errors:
            raise errors[0]
        raise ServerUnavailable(
            f"{self._servers.describe(self._asked)} did not answer within {self._timeout_s:g} s: check that it runs "
            "and can be reached."
        )

    def _reach(self) -> Reached:
        shards, _ = self._size()
        first_shards = self._one_of_each_server(shards or self._servers.default_shards)
        for shard in first_shards:
            self._ask(shard, "PING")
        return Reached(len(first_shards), shards)

    def _readiness(self) -> Readiness:
        shards, servers = self._size()
        if shards is None:
            problem = f"Namespace {self._namespace!r} does not exist on these servers: check its name and the URL."
            return Readiness(self._servers.count(), 0, [problem])
        first_shards = self._one_of_each_server(shards)
        problems = [self._memory(shard) for shard in first_shards]
        if servers == self._servers.count():
            problems += [self._rotation(shard) for shard in range(shards)]
        else:
            named = f"{servers} servers, but {self._servers.count()} are named"
            problems.append(f"Namespace {self._namespace!r} is spread over {named}.")
        return Readiness(len(first_shards), shards, [problem for problem in problems if problem])

    def _keys(self, shard: int) -> ShardKeys:
        return ShardKeys(self._namespace, shard, 0)

    def _size(self) -> tuple[int | None, int]:
        """How many shards the namespace has, on how many servers; (None, 0) if it does not exist.

        Asks all servers, since any of them may have lost its data.
        """
        for shard in range(self._servers.count()):
            shards, servers = self._ask(shard, "HMGET", self._keys(shard).meta, "shards", "servers")
            if shards is not None:
                if not 0 < number_of(shards) <= MAX_SHARDS:
                    raise Unreadable(
                        f"Namespace {self._namespace!r} has shards={shards[:30]!r}, so another program wrote to it: "
                        "write the settings back, or use another namespace."
                    )
                return number_of(shards), number_of(servers)
        return None, 0

    def _one_of_each_server(self, shards: int) -> list[int]:
        """The first shard of each server that is named, whether the namespace uses it or not."""
        first: dict[int, int] = {}
        for shard in range(max(shards, self._servers.count())):
            first.setdefault(id(self._run(shard, self._servers.client)), shard)
        return list(first.values())

    def _ask(self, shard: int, *command: str) -> Any:
        return self._run(shard, lambda one: self._servers.client(one).execute_command(*command))

    def _run(self, shard: int, job: Callable[[int], T]) -> T:
        self._asked = shard
        try:
            return job(shard)
        except TROUBLE as error:
            raise self._explained(shard, error) from error

    def _explained(self, shard: int, error: Exception) -> AckerError:
        server = self._servers.describe(shard)
        return denied(server, error) if is_denied(error) else unavailable(server, error)

    def _memory(self, shard: int) -> str | None:
        try:
            info = self._servers.client(shard).execute_command("INFO", "memory")
        except redis.ResponseError:  # this user may not ask
            return None
        except TROUBLE as error:
            raise self._explained(shard, error) from error
        used, most = int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))
        if most and used >= most:
            where = self._servers.describe(shard)
            return f"{where} is out of memory ({used:,} of {most:,} bytes): it refuses new roots."
        return None

    def _rotation(self, shard: int) -> str | None:
        turned_ms, timeout_ms, buckets = self._ask(
            shard, "HMGET", self._keys(shard).meta, "turned_ms", "timeout_ms", "buckets"
        )
        if timeout_ms is None:
            return f"Shard {shard} is missing: its server has lost its data."
        now_ms = ms_of(self._ask(shard, "TIME"))
        tick_ms = -(-number_of(timeout_ms) // max(1, number_of(buckets) - 1))
        late_ms = now_ms - (number_of(turned_ms) or now_ms) - tick_ms
        if is_overdue(-late_ms, tick_ms):
            return f"Shard {shard} was due to rotate {late_ms / 1000:,.0f} s ago: no rotator runs, or its drain hangs."
        return None
