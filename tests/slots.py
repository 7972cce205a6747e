"""Moving a slot of a cluster from one node to another."""

from __future__ import annotations

from collections.abc import Iterator

import redis
from redis.crc import key_slot

from tests.servers import Cluster


class Mover:
    """Moves the slot of a shard between two nodes, step by step."""

    def __init__(self, cluster: Cluster, tag: str) -> None:
        self.slot = key_slot(tag.encode())
        self._cluster = cluster
        clients = [node.client() for node in cluster.nodes]
        owner = next(i for i, client in enumerate(clients) if self._owns(client))
        self.source, self.target = clients[owner], clients[(owner + 1) % len(clients)]
        self._target_port = cluster.nodes[(owner + 1) % len(clients)].port
        self._clients = clients

    def _owns(self, client: redis.Redis) -> bool:
        me = client.execute_command("CLUSTER MYID").decode()
        nodes = client.execute_command("CLUSTER SLOTS")
        return any(first <= self.slot <= last and owner[2].decode() == me for first, last, owner, *_ in nodes)

    def begin(self) -> None:
        source_id, target_id = (client.execute_command("CLUSTER MYID") for client in (self.source, self.target))
        self.target.execute_command("CLUSTER SETSLOT", self.slot, "IMPORTING", source_id)
        self.source.execute_command("CLUSTER SETSLOT", self.slot, "MIGRATING", target_id)

    def move_keys(self) -> Iterator[bytes]:
        """Moves key by key, so that the slot is on both nodes in between."""
        while keys := self.source.execute_command("CLUSTER GETKEYSINSLOT", self.slot, 1):
            self.source.execute_command("MIGRATE", "127.0.0.1", self._target_port, keys[0], 0, 5000)
            yield keys[0]

    def end(self) -> None:
        target_id = self.target.execute_command("CLUSTER MYID")
        for client in (self.target, self.source, *self._clients):
            client.execute_command("CLUSTER SETSLOT", self.slot, "NODE", target_id)

    def close(self) -> None:
        for client in self._clients:
            client.close()
