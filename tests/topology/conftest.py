"""Fixtures: the stores that the tests of components use, and a namespace in which time is short."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from redis_acker import Acker
from tests.backends import Servers, make_backend
from tests.components.conftest import any_store, store

__all__ = ["any_store", "store"]


@pytest.fixture
def hasty_acker(servers: Servers, namespace: str) -> Iterator[Acker]:
    """A namespace on the server's own clock, with a short timeout."""
    backend = make_backend("redis-7.0", servers)
    with Acker(backend.target, namespace=namespace, timeout_ms=500) as acker:
        yield acker
    backend.delete_keys(namespace)
