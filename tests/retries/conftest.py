"""Fixtures: an acker on a real server."""

from collections.abc import Iterator

import pytest

from redis_acker import Acker
from tests.backends import Servers, make_backend


@pytest.fixture
def acker(servers: Servers, namespace: str) -> Iterator[Acker]:
    backend = make_backend("redis-7.0", servers)
    with Acker(backend.target, namespace=namespace) as found:
        yield found
    backend.delete_keys(namespace)
