"""A namespace whose users have the rules that `redis-acker acl` prints, and no others."""

from __future__ import annotations

import shlex

from redis_acker import Acker
from redis_acker.store.roles import ROLES
from tests.cli.acting_commands.shop import Shop
from tests.cli.runs import redis_acker
from tests.servers import Cluster, Server

PASSWORD = "geheim"


class House:
    """A server, or a cluster, with a namespace, and users that are made of what the command prints."""

    def __init__(self, server: Server | Cluster, namespace: str, timeout_ms: int) -> None:
        self.server, self.namespace = server, namespace
        self.nodes = server.nodes if isinstance(server, Cluster) else [server]
        self._known: dict[str, str] = {}
        self.shop = Shop(server.url, namespace, timeout_ms=timeout_ms, buckets=2)

    def close(self) -> None:
        self.shop.acker.close()
        for node in self.nodes:
            with node.client() as client:
                client.acl_deluser(*(f"{self.namespace}-{role}" for role in ROLES))

    def url(self, role: str) -> str:
        """With which a user of the role logs in."""
        if role not in self._known:
            self._known[role] = self._add_user(role)
        return self._known[role]

    def _add_user(self, role: str) -> str:
        with self.nodes[0].client() as client:
            is_old = client.info("server")["redis_version"].startswith("6.")
        options = ["--without-selectors"] if is_old else []
        ran = redis_acker("acl", "--role", role, "--namespace", self.namespace, *options)
        assert ran.returncode == 0
        words = shlex.split(ran.stdout)
        assert words[:3] == ["ACL", "SETUSER", f"{self.namespace}-{role}"]
        for node in self.nodes:
            with node.client() as client:
                client.execute_command(*words)
                client.execute_command("ACL", "SETUSER", words[2], f">{PASSWORD}")
        return self.server.url.replace("://", f"://{words[2]}:{PASSWORD}@")

    def user_url(self, node: Server, role: str) -> str:
        """The same on one node."""
        self.url(role)
        return node.url.replace("://", f"://{self.namespace}-{role}:{PASSWORD}@")

    def acker(self, role: str) -> Acker:
        return Acker(self.url(role), namespace=self.namespace, create=False)

    def as_user(self, role: str) -> Shop:
        """The console script of a user."""
        shop = object.__new__(Shop)
        shop.environment = {**self.shop.environment, "REDIS_ACKER_URL": self.url(role)}
        return shop

    def forget_scripts(self) -> None:
        for node in self.nodes:
            with node.client() as client:
                client.script_flush()
