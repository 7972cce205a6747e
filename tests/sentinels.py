"""Real sentinels for tests, with the master and the replica they watch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from tests.binaries import require_binary
from tests.servers import HOST, Server, new_directory, start_command, start_server
from tests.waiting import wait_until

#: The name under which the sentinels know their master.
SERVICE = "mymaster"


@dataclass
class SentinelSet:
    """A master, its replica, and the sentinels that watch them."""

    master: Server
    replica: Server
    sentinels: list[Server]
    service: str = SERVICE

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Where the sentinels listen."""
        return [(HOST, sentinel.port) for sentinel in self.sentinels]

    @property
    def urls(self) -> list[str]:
        return [sentinel.url for sentinel in self.sentinels]

    def master_port(self) -> int:
        """The port of the master, as the first sentinel sees it."""
        with self.sentinels[0].client() as client:
            return int(client.sentinel_master(self.service)["port"])

    def kill_master(self) -> None:
        self.master.kill()

    def wait_for_failover(self, timeout_s: float = 30.0) -> None:
        """Wait until every sentinel names the former replica as master, and it takes writes."""
        for sentinel in self.sentinels:
            with sentinel.client() as client:
                wait_until(partial(self._has_moved, client), timeout_s)
        with self.replica.client() as client:
            wait_until(lambda: client.info("replication")["role"] == "master", timeout_s)

    def _has_moved(self, client: Any) -> bool:
        return int(client.sentinel_master(self.service)["port"]) == self.replica.port

    def stop(self) -> None:
        for server in (*self.sentinels, self.replica, self.master):
            server.stop()


def start_sentinel(kind: str = "redis-7.0", sentinels: int = 3) -> SentinelSet:
    """A master with one replica under `sentinels` sentinels; a majority of them decides a failover."""
    binary = require_binary(kind)
    master = start_server(kind, "--repl-diskless-sync-delay", "0")
    replica = start_server(kind, "--replicaof", f"{HOST} {master.port}")
    found = SentinelSet(master, replica, [_start_one_sentinel(binary, master, sentinels) for _ in range(sentinels)])
    for sentinel in found.sentinels:
        with sentinel.client() as client:
            wait_until(partial(_is_watching, client, sentinels), 30)
    return found


def _start_one_sentinel(binary: str, master: Server, sentinels: int) -> Server:
    directory = new_directory()
    (directory / "sentinel.conf").write_text(
        f"sentinel monitor {SERVICE} {HOST} {master.port} {sentinels // 2 + 1}\n"
        f"sentinel down-after-milliseconds {SERVICE} 1000\n"
        f"sentinel failover-timeout {SERVICE} 5000\n"
    )
    return start_command(
        [binary, "sentinel.conf", "--sentinel", "--port", "{port}", "--bind", HOST],
        url=f"redis://{HOST}:{{port}}",
        directory=directory,
    )


def _is_watching(client: Any, sentinels: int) -> bool:
    seen = client.sentinel_master(SERVICE)
    return bool(seen["num-slaves"] == 1 and seen["num-other-sentinels"] == sentinels - 1)
