"""Fixtures: an acker on a fake server, for what does not depend on the server, and a run on every kind of store."""

from collections.abc import Iterator

import pytest

from redis_acker import Acker
from redis_acker.testing import fake_redis
from tests.backends import Backend
from tests.clock import Clock
from tests.lua.ledger import Ledger
from tests.store.portions import Run


@pytest.fixture
def acker(namespace: str, clock: Clock) -> Acker:
    return Acker(fake_redis(), namespace=namespace, clock=clock)


@pytest.fixture
def run(backend: Backend, namespace: str) -> Iterator[Run]:
    ledger = Ledger(backend, namespace, block_size=8)
    found = Run(ledger)
    yield found
    found.drop()
    ledger.close()
