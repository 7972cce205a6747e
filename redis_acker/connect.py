"""From URLs to clients: one server, several, a cluster, Sentinel, or a private embedded server."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import parse_qsl, unquote, urlsplit

import redis
from redis.backoff import NoBackoff
from redis.cluster import RedisCluster
from redis.retry import Retry
from redis.sentinel import Sentinel

from redis_acker.errors import BadInput, ServerUnavailable

if TYPE_CHECKING:
    from redis_acker.embedded import EmbeddedServer

URL_VARIABLE = "REDIS_ACKER_URL"
"""Environment variable with the URL, or several separated by commas or spaces, for clients that are given none."""

SOCKET_TIMEOUT_S = 5.0
"""How long a connection waits for the server before it is given up and the command sent again."""

CLUSTER_SHARDS = 16
"""Shards of a new namespace on a cluster, unless set: enough to spread over a few nodes."""

Target: TypeAlias = "str | redis.Redis"

_FORMS = (
    "redis://host:port/db, rediss://... (TLS), unix:///path, redis+cluster://host:port, "
    "redis+sentinel://host:port,host:port/service, or embedded"
)
_BETWEEN_URLS = re.compile(r"[\s,]+(?=[a-z+]+://|embedded\b)")


class Servers:
    """Which client serves which shard."""

    default_shards: int
    urls: list[str]
    """URLs with which another process reaches the same servers; empty for clients that were passed in."""

    def client(self, shard: int) -> redis.Redis:
        raise NotImplementedError

    def count(self) -> int:
        """Among how many separate servers the shards are dealt out; 1 for a cluster."""
        return 1

    def refresh(self) -> None:
        """Called after trouble, before commands are sent again."""

    def describe(self, shard: int) -> str:
        """The server in words, without its password."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


class Fleet(Servers):
    """Shards dealt out over separate servers, in the order of their URLs."""

    def __init__(self, clients: Sequence[redis.Redis], urls: list[str], embedded: EmbeddedServer | None = None) -> None:
        self._clients = clients
        self._embedded = embedded
        self.urls = urls
        self.default_shards = len(clients)

    def client(self, shard: int) -> redis.Redis:
        return self._clients[shard % len(self._clients)]

    def count(self) -> int:
        return len(self._clients)

    def describe(self, shard: int) -> str:
        position = shard % len(self._clients)
        return f"The server {hide_password(self.urls[position])}" if self.urls else "The server"

    def close(self) -> None:
        if not self.urls:
            return  # clients that were passed in belong to the caller
        for client in self._clients:
            client.close()
        if self._embedded:
            self._embedded.stop()


class Cluster(Servers):
    """Shards placed by their hash tag on the nodes of a Redis Cluster."""

    default_shards = CLUSTER_SHARDS

    def __init__(self, url: str, tag_of: Callable[[int], str]) -> None:
        self.urls = [url]
        self._tag_of = tag_of
        self._cluster = RedisCluster.from_url(url.replace("+cluster", "", 1), **_client_options())

    def client(self, shard: int) -> redis.Redis:
        node = self._cluster.get_node_from_key(self._tag_of(shard))
        return self._cluster.get_redis_connection(node)

    def refresh(self) -> None:
        with contextlib.suppress(redis.RedisError):  # no node answers now; the next attempt finds out
            self._cluster.nodes_manager.initialize()

    def describe(self, shard: int) -> str:
        return f"The cluster {hide_password(self.urls[0])}"

    def close(self) -> None:
        self._cluster.close()


def open_servers(target: Target | Sequence[Target] | None, tag_of: Callable[[int], str]) -> Servers:
    """Connects to what a URL, several URLs, redis-py clients or the environment name."""
    targets = _split(target)
    urls = [one for one in targets if isinstance(one, str)]
    if not urls:
        return Fleet([one for one in targets if isinstance(one, redis.Redis)], [])
    if len(urls) != len(targets):
        raise BadInput("Pass either URLs or redis-py clients, not both.")
    if any("+cluster://" in url for url in urls):
        if len(urls) > 1:
            raise BadInput("Pass one URL for a cluster: its nodes tell each other's addresses.")
        return _open_cluster(urls[0], tag_of)
    if urls == ["embedded"]:
        from redis_acker.embedded import EmbeddedServer

        server = EmbeddedServer()
        return Fleet([_open(server.url)], [server.url], server)
    return Fleet([_open(url) for url in urls], urls)


def hide_password(url: str) -> str:
    """The URL as it may be shown."""
    return re.sub(r"(?<=://)([^:@/]*):[^@]*@", r"\1:***@", re.sub(r"(password=)[^&]*", r"\1***", url))


def _split(target: Target | Sequence[Target] | None) -> list[Target]:
    if target is None:
        target = os.environ.get(URL_VARIABLE, "")
        if not target.strip():
            raise BadInput(f"No server was named: pass a URL or set {URL_VARIABLE} ({_FORMS}).")
    if isinstance(target, str):
        return list(_BETWEEN_URLS.split(target.strip()))
    if isinstance(target, redis.Redis):
        return [target]
    targets = list(target)
    if not targets or not all(isinstance(one, (str, redis.Redis)) for one in targets):
        raise BadInput(f"A server is named by a URL ({_FORMS}) or is a redis-py client, not {target!r}.")
    return targets


def _client_options() -> dict[str, Any]:
    return {
        "socket_timeout": SOCKET_TIMEOUT_S,
        "socket_connect_timeout": SOCKET_TIMEOUT_S,
        "socket_keepalive": True,
        "protocol": 2,
    }


def _open(url: str) -> redis.Redis:
    scheme = url.partition("://")[0]
    if scheme in ("redis+sentinel", "rediss+sentinel"):
        return _open_sentinel(url)
    if scheme not in ("redis", "rediss", "unix"):
        raise BadInput(f"{hide_password(url)!r} is not a server's URL: use {_FORMS}.")
    options = _client_options()
    if scheme == "unix":
        del options["socket_keepalive"]
    try:
        return redis.Redis.from_url(url, retry=Retry(NoBackoff(), 0), **options)
    except (ValueError, TypeError) as error:
        raise BadInput(f"{hide_password(url)!r} is not a server's URL ({error}): use {_FORMS}.") from None


def _open_sentinel(url: str) -> redis.Redis:
    parts = urlsplit(url)
    login, _, hosts = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    service, _, db = parts.path.strip("/").partition("/")
    try:
        addresses = [(host, int(port)) for host, port in (one.rsplit(":", 1) for one in hosts.split(","))]
        database = int(db or 0)
    except ValueError:
        addresses = []
    if not addresses or not service:
        raise BadInput(
            f"{hide_password(url)!r} is not a Sentinel URL: use redis+sentinel://host:port,host:port/service."
        )
    query = dict(parse_qsl(parts.query))
    sentinel_options = {**_client_options(), "password": query.pop("sentinel_password", None), **query}
    tls = {"ssl": True} if parts.scheme.startswith("rediss") else {}
    sentinel = Sentinel(addresses, sentinel_kwargs={**sentinel_options, **tls})
    options = {**_client_options(), **query, **tls, "db": database, "retry": Retry(NoBackoff(), 0)}
    if password:
        options |= {"username": unquote(user) or None, "password": unquote(password)}
    client: redis.Redis = sentinel.master_for(service, **options)
    return client


def _open_cluster(url: str, tag_of: Callable[[int], str]) -> Cluster:
    try:
        return Cluster(url, tag_of)
    except (ValueError, TypeError) as error:
        raise BadInput(f"{hide_password(url)!r} is not a cluster's URL ({error}): use {_FORMS}.") from None
    except redis.RedisError as error:
        raise ServerUnavailable(
            f"The cluster {hide_password(url)} cannot be reached ({error}): check that it runs and is a cluster."
        ) from error
