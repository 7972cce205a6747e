"""Fixtures: a server, and a way to it that can be cut."""

from __future__ import annotations

import pytest

from tests.backends import Keeper, Servers
from tests.proxy import CuttingProxy
from tests.servers import Server
from tests.store.connect.ledger import ONE_SERVER_KINDS


@pytest.fixture(params=ONE_SERVER_KINDS)
def server(request: pytest.FixtureRequest, servers: Servers) -> Server:
    found = servers.get(request.param)
    assert isinstance(found, Server)
    return found


@pytest.fixture
def proxy(server: Server, keeper: Keeper) -> CuttingProxy:
    return keeper.keep(CuttingProxy("127.0.0.1", server.port))
