"""Fixtures: simulated time, without a server and with one."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from redis_acker.testing import SimulatedAcker, SimulatedTime, simulated_acker
from tests.backends import BACKENDS, Servers

Simulated = tuple[SimulatedAcker, SimulatedTime]
Simulate = Callable[..., Simulated]


def simulating(servers: Servers, kind: str) -> Iterator[Simulate]:
    with ExitStack() as stack:

        def simulate(**settings: Any) -> Simulated:
            url = None if kind == "fake" else servers.get(kind).url
            return stack.enter_context(simulated_acker(url, **settings))

        yield simulate


@pytest.fixture(params=["fake", "redis-7.0"])
def simulate(request: pytest.FixtureRequest, servers: Servers) -> Iterator[Simulate]:
    """simulate(timeout_ms=10_000): an acker and its time."""
    yield from simulating(servers, request.param)


@pytest.fixture(params=BACKENDS)
def simulate_everywhere(request: pytest.FixtureRequest, servers: Servers) -> Iterator[Simulate]:
    """The same, once per kind of store."""
    yield from simulating(servers, request.param)


@pytest.fixture
def simulated(simulate: Simulate) -> Simulated:
    """With the default settings: a timeout of 30 s and 3 buckets."""
    return simulate()
