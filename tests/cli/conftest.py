"""Fixtures: a namespace with something in it, on a real server."""

from collections.abc import Iterator

import pytest

from tests.backends import Servers, make_backend
from tests.cli.looking import Market


@pytest.fixture
def market(servers: Servers, namespace: str) -> Iterator[Market]:
    backend = make_backend("redis-7.0", servers)
    assert isinstance(backend.target, str)
    found = Market(backend.target, namespace)
    yield found
    found.acker.close()
    backend.delete_keys(namespace)
