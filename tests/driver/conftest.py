"""Fixtures: worlds to drive a spout in."""

from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Any

import pytest

from redis_acker.store.message_ids import MessageId
from tests.backends import Servers
from tests.driver.world import World
from tests.servers import Server, start_server

NewWorld = Callable[..., World]


@pytest.fixture(scope="package")
def private_server() -> Iterator[Server]:
    """A server whose memory may be full, and that may be killed and restarted."""
    server = start_server("redis-7.0")
    yield server
    server.stop()


@pytest.fixture
def new_world(servers: Servers, namespace: str) -> Iterator[NewWorld]:
    """new_world({1: "complete"}, shards=2): a world with a namespace of its own."""
    client, numbers = servers.client("redis-7.0"), count()

    def make(plans: Mapping[MessageId, str] | None = None, **settings: Any) -> World:
        return World(client, f"{namespace}-{next(numbers)}", plans or {}, settings)

    yield make
    for key in client.scan_iter(match=f"*{namespace}*", count=1000):
        client.delete(key)
