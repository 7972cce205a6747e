"""A call that is refused leaves the shard as it was."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from redis_acker import new_edges
from redis_acker.errors import WrongKeyType
from tests.backends import Backend, Servers, make_backend
from tests.lua.conftest import OpenLedger
from tests.lua.ledger import SPOUT, TICK_MS, Ledger


class Shard:
    """A shard with something in every bucket: pending, expired, orphaned and finished blocks."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger, self.acker = ledger, ledger.acker
        self.expired, self.expired_edges = ledger.start(12, message_ids=[f"{i}" for i in range(12)])
        ledger.expire_undrained()
        self.orphans, self.orphan_edges = self.acker.allocate(SPOUT, 12), new_edges(12)
        self.acker.ack(self.orphans, self.orphan_edges)
        self.acker.fail(self.orphans[:1])
        self.pending, self.pending_edges = ledger.start(12, message_ids=[f"{i}" for i in range(12)])
        ledger.clock.advance(TICK_MS)

    def drain(self) -> object:
        block = int(self.expired[0]).to_bytes(8, "big")
        return self.acker.shards.drain(0, [([self.acker.spout_number(SPOUT)], block)])


OPERATIONS: dict[str, Callable[[Shard], object]] = {
    "init": lambda shard: shard.acker.init(shard.acker.allocate(SPOUT, 9), new_edges(9), message_ids=list("abcdefghi")),
    "init of an orphan": lambda shard: shard.acker.init(shard.orphans, shard.orphan_edges),
    "ack of some": lambda shard: shard.acker.ack(shard.pending[:2], shard.pending_edges[:2]),
    "ack of all": lambda shard: shard.acker.ack(shard.pending, shard.pending_edges),
    "late ack": lambda shard: shard.acker.ack(shard.expired, shard.expired_edges),
    "early ack": lambda shard: shard.acker.ack(shard.acker.allocate(SPOUT, 9), new_edges(9)),
    "fail": lambda shard: shard.acker.fail(shard.pending[:2]),
    "extend": lambda shard: shard.acker.extend(shard.expired[:2]),
    "drain": lambda shard: shard.drain(),
    "rotate": lambda shard: (shard.drain(), shard.ledger.turn()),
}


@pytest.fixture(params=["redis-7.0", "redis-6.2"])
def backend(request: pytest.FixtureRequest, servers: Servers, namespace: str) -> Iterator[Backend]:
    """Servers that report an error inside a script in the new way and in the old one."""
    found = make_backend(request.param, servers)
    yield found
    found.delete_keys(namespace)


def is_refused(shard: Shard, operation: str) -> bool:
    try:
        OPERATIONS[operation](shard)
    except WrongKeyType:
        return True
    return False


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_key_of_another_type_is_refused_with_nothing_changed(open_ledger: OpenLedger, operation: str) -> None:
    """Whichever key it is. Where the call does not need that key, it does all of its work."""
    ledger = open_ledger(shards=1)
    keys = [
        key
        for key in ledger.acker.shards.keys[0].with_streams([ledger.acker.spout_number(SPOUT)])
        if ":scratch:" not in key
    ]
    client: Any = ledger.backend.client()
    shard, refused = Shard(ledger), []
    for key in keys:
        aside = f"{key}:aside"
        existed = bool(client.exists(key)) and client.rename(key, aside)
        client.set(key, "foreign")
        before = ledger.stored()
        if is_refused(shard, operation):
            refused.append(key)
            assert ledger.stored() == before, key
            client.delete(key)
            if existed:
                client.rename(aside, key)
        else:
            ledger.backend.delete_keys(ledger.acker.namespace)
            ledger.rotator.once()
            shard = Shard(ledger)
    assert refused
    ledger.backend.delete_keys(ledger.acker.namespace)
