"""The stores that one test is run against, and the servers of its own that it starts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import fakeredis
import redis
from redis.cluster import RedisCluster

from redis_acker.testing import fake_redis
from tests.servers import Cluster, Server, start_cluster, start_server

#: Every kind of store, quickest first.
BACKENDS = ("fake", "redis-7.0", "valkey-9.1", "redis-6.2", "cluster")


@dataclass
class Servers:
    """The servers of a test run, by kind: started when first asked for, then shared."""

    _running: dict[str, Server | Cluster] = field(default_factory=dict)
    _clients: dict[str, Any] = field(default_factory=dict)

    def get(self, kind: str) -> Server | Cluster:
        if kind not in self._running:
            self._running[kind] = start_cluster() if kind == "cluster" else start_server(kind)
        return self._running[kind]

    def client(self, kind: str) -> Any:
        """One client of each server: to connect to a cluster takes longer than most tests."""
        if kind not in self._clients:
            self._clients[kind] = self.get(kind).client()
        return self._clients[kind]

    def stop(self) -> None:
        for client in self._clients.values():
            client.close()
        self._clients.clear()
        for server in self._running.values():
            server.stop()
        self._running.clear()


@dataclass
class Backend:
    """One store. `target` is what the product is pointed at; `client()` is for looking inside."""

    kind: str
    target: str | fakeredis.FakeRedis
    _connect: Callable[[], Any]

    @property
    def is_cluster(self) -> bool:
        return self.kind == "cluster"

    def client(self) -> redis.Redis | RedisCluster:
        return self._connect()  # type: ignore[no-any-return]

    def keys(self, namespace: str) -> list[bytes]:
        """Every key of a namespace, sorted."""
        found: Iterable[bytes] = self.client().scan_iter(match=f"*{namespace}*", count=1000)
        return sorted(found)

    def delete_keys(self, namespace: str) -> None:
        client = self.client()
        for key in self.keys(namespace):
            client.delete(key)


def make_backend(kind: str, servers: Servers) -> Backend:
    if kind == "fake":
        fake = fake_redis()
        return Backend(kind, fake, lambda: fake)
    return Backend(kind, servers.get(kind).url, lambda: servers.client(kind))


class Stoppable(Protocol):
    def stop(self) -> None: ...


S = TypeVar("S", bound=Stoppable)


class Keeper(ExitStack):
    """Stops at the end of a test what was passed to it."""

    def keep(self, thing: S) -> S:
        self.callback(thing.stop)
        return thing
