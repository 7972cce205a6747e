"""Fixtures: a namespace on a real server, and the console script pointed at it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.backends import Servers, make_backend
from tests.cli.acting_commands.house import House
from tests.cli.acting_commands.shop import Shop

NewShop = Callable[..., Shop]


@pytest.fixture
def new_shop(servers: Servers, namespace: str) -> Iterator[NewShop]:
    """new_shop("valkey-9.1", timeout_ms=1): a shop with a namespace of its own."""
    made: list[tuple[str, Shop]] = []
    numbers = count()

    def make(kind: str = "redis-7.0", **settings: Any) -> Shop:
        shop = Shop(servers.get(kind).url, f"{namespace}-{next(numbers)}", **settings)
        made.append((kind, shop))
        return shop

    yield make
    for kind, shop in made:
        shop.acker.close()
        client = servers.client(kind)
        for key in client.scan_iter(match=f"*{namespace}*", count=1000):
            client.delete(key)


@pytest.fixture
def shop(new_shop: NewShop) -> Shop:
    return new_shop()


@pytest.fixture(params=["redis-7.0", "valkey-9.1", "redis-6.2", "cluster"])
def house(request: pytest.FixtureRequest, servers: Servers, namespace: str) -> Iterator[House]:
    found = House(servers.get(request.param), namespace, timeout_ms=60_000)
    yield found
    found.close()
    make_backend(request.param, servers).delete_keys(namespace)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "failed.jsonl"
