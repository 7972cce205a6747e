"""Fixtures for every test: the stores, and a namespace of one's own."""

import secrets
from collections.abc import Iterator

import pytest

from tests.backends import BACKENDS, Backend, Servers, make_backend


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    """servers.get(kind) starts a server once per run; for a server to be killed use tests.servers."""
    pool = Servers()
    yield pool
    pool.stop()


@pytest.fixture
def namespace() -> str:
    """A name that no other test uses."""
    return f"t{secrets.token_hex(4)}"


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, servers: Servers, namespace: str) -> Iterator[Backend]:
    """Runs the test once per kind of store."""
    found = make_backend(request.param, servers)
    yield found
    found.delete_keys(namespace)
