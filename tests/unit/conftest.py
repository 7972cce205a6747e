"""Fixtures: an acker on a fake server, for what does not depend on the server."""

import pytest

from redis_acker import Acker
from tests.clock import Clock
from tests.fake import fake_redis


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def acker(namespace: str, clock: Clock) -> Acker:
    return Acker(fake_redis(), namespace=namespace, clock=clock)
