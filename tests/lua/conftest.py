"""Fixtures: ledgers that are looked through for leftovers when the test is over."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.backends import Backend
from tests.lua.ledger import Ledger

OpenLedger = Callable[..., Ledger]


@pytest.fixture
def open_ledger(backend: Backend, namespace: str) -> Iterator[OpenLedger]:
    """open_ledger(block_size=9): one namespace with settings of one's own."""
    opened: list[Ledger] = []

    def open_one(**settings: Any) -> Ledger:
        opened.append(Ledger(backend, namespace, **settings))
        return opened[-1]

    yield open_one
    for ledger in opened:
        ledger.close()


@pytest.fixture
def ledger(open_ledger: OpenLedger) -> Ledger:
    return open_ledger()
