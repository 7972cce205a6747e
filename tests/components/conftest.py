"""Fixtures: a store that is looked through for leftovers when the test is over."""

from collections.abc import Iterator

import pytest

from tests.backends import Backend, Servers, make_backend
from tests.components.store import Store


@pytest.fixture
def store(servers: Servers, namespace: str) -> Iterator[Store]:
    """One real server is enough: what differs between stores is tested where they are."""
    backend = make_backend("redis-7.0", servers)
    found = Store(backend, namespace)
    yield found
    found.close()
    backend.delete_keys(namespace)


@pytest.fixture
def any_store(backend: Backend, namespace: str) -> Iterator[Store]:
    """Runs the test once per kind of store."""
    found = Store(backend, namespace)
    yield found
    found.close()
