"""Fixtures for servers of a test's own."""

from collections.abc import Iterator

import pytest

from tests.clock import Clock
from tests.connect.ledger import Keeper


@pytest.fixture
def keeper() -> Iterator[Keeper]:
    """keeper.keep(server) stops it when the test is over."""
    with Keeper() as found:
        yield found


@pytest.fixture
def clock() -> Clock:
    return Clock()
