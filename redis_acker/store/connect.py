"""From URLs to clients: one server, several, a cluster, Sentinel, or a private embedded server."""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import unquote, urlsplit

import redis
from redis.backoff import NoBackoff
from redis.cluster import RedisCluster
from redis.connection import parse_url
from redis.exceptions import AuthenticationError, AuthorizationError, NoPermissionError, RedisClusterException
from redis.retry import Retry
from redis.sentinel import Sentinel

from redis_acker.errors import BadInput
from redis_acker.store.urls import FORMS, check_url, hide_password, not_a_url

if TYPE_CHECKING:
    from redis_acker.server.embedded import EmbeddedServer

URL_VARIABLE = "REDIS_ACKER_URL"
"""Environment variable: the URL, or several separated by commas or spaces, for clients that are given none."""

SOCKET_TIMEOUT_S = 5.0
"""How long a connection waits for the server before the command is sent again on another."""

CLUSTER_SHARDS = 16
"""Default number of shards in a cluster: enough to spread over a few nodes."""

Target: TypeAlias = "str | redis.Redis"

_BETWEEN_URLS = re.compile(r"[\s,]+(?=[a-z+]+://|embedded\b)")


class Servers:
    """Which client serves which shard."""

    default_shards: int
    urls: list[str]
    """For other processes to reach the same servers; empty for clients that were passed in."""

    def client(self, shard: int) -> redis.Redis:
        raise NotImplementedError

    def count(self) -> int:
        """How many separate servers share the shards; 1 for a cluster."""
        return 1

    def nodes(self) -> list[tuple[str, redis.Redis]]:
        """Every server that may hold a shard: in words, without its password, and a client."""
        raise NotImplementedError

    def refresh(self) -> None:
        """Called after trouble, before commands are sent again."""

    def describe(self, shard: int) -> str:
        """The server in words, without its password."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


class Fleet(Servers):
    """Shards dealt out to separate servers in turn, in the order of their URLs."""

    def __init__(self, clients: Sequence[redis.Redis], urls: list[str], embedded: EmbeddedServer | None = None) -> None:
        self._clients = clients
        self._embedded = embedded
        self.urls = urls
        self.default_shards = len(clients)

    def client(self, shard: int) -> redis.Redis:
        return self._clients[shard % len(self._clients)]

    def count(self) -> int:
        return len(self._clients)

    def nodes(self) -> list[tuple[str, redis.Redis]]:
        return [(self.describe(position), client) for position, client in enumerate(self._clients)]

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
        self._lock = threading.Lock()
        self._cluster: RedisCluster | None = None

    def client(self, shard: int) -> redis.Redis:
        cluster = self._open()
        return cluster.get_redis_connection(cluster.get_node_from_key(self._tag_of(shard)))

    def nodes(self) -> list[tuple[str, redis.Redis]]:
        cluster = self._open()
        return [
            (f"The node {node.host}:{node.port}", cluster.get_redis_connection(node))
            for node in cluster.get_primaries()
        ]

    def refresh(self) -> None:
        with contextlib.suppress(redis.RedisError, RedisClusterException):  # the next attempt will tell
            if self._cluster:
                self._cluster.nodes_manager.initialize()

    def describe(self, shard: int) -> str:
        return f"The cluster {hide_password(self.urls[0])}"

    def close(self) -> None:
        if self._cluster:
            self._cluster.close()

    def _open(self) -> RedisCluster:
        """Connects at first use: a cluster that is not up yet is then waited for like any other server."""
        if self._cluster is None:
            with self._lock:
                self._cluster = self._cluster or self._connect()
        return self._cluster

    def _connect(self) -> RedisCluster:
        url = self.urls[0]
        try:
            return RedisCluster.from_url(url.replace("+cluster", "", 1), **_client_options())
        except (ValueError, TypeError) as error:
            raise not_a_url("a cluster's URL", url, error) from None
        except RedisClusterException as error:
            if isinstance(error.__cause__, (AuthenticationError, AuthorizationError, NoPermissionError)):
                raise error.__cause__ from None
            if "cannot be connected" not in str(error) or "Cluster mode is not enabled" in str(error):
                raise BadInput(f"{hide_password(url)!r} names no cluster ({error}): use {FORMS}.") from None
            raise


def open_servers(target: Target | Sequence[Target] | None, tag_of: Callable[[int], str]) -> Servers:
    """The servers that a URL, several URLs, redis-py clients or the environment name.

    tag_of gives a string with the hash tag of a shard, which decides its node in a cluster.
    """
    targets = _split(target)
    urls = [one for one in targets if isinstance(one, str)]
    if not urls:
        return Fleet([_check_client(one) for one in targets if isinstance(one, redis.Redis)], [])
    if len(urls) != len(targets):
        raise BadInput("Pass either URLs or redis-py clients, not both.")
    for url in urls:
        check_url(url)
    if len(set(urls)) != len(urls):
        raise BadInput("A server is named twice: name each once. One server can hold any number of shards.")
    if any("+cluster://" in url for url in urls):
        if len(urls) > 1:
            raise BadInput("Pass one URL for a cluster: any node knows the others.")
        return Cluster(urls[0], tag_of)
    if "embedded" in urls:
        if len(urls) > 1:
            raise BadInput(
                "'embedded' cannot be combined with other servers: pass 'embedded' alone, or the URLs of servers."
            )
        from redis_acker.server.embedded import EmbeddedServer

        server = EmbeddedServer()
        return Fleet([_open(server.url)], [server.url], server)
    return Fleet([_open(url) for url in urls], urls)


def other_urls(target: str | Sequence[str], servers: Servers) -> list[str]:
    """URLs with which others reach the same servers, as another user for example. They are not connected to."""
    urls = [one for one in _split(target) if isinstance(one, str)]
    if "embedded" in urls or len(urls) != len(servers.urls):
        raise BadInput(f"executor_url must name the same {len(servers.urls)} servers as url, in the same order.")
    open_servers(urls, str).close()
    return urls


def _split(target: Target | Sequence[Target] | None) -> list[Target]:
    if target is None:
        target = os.environ.get(URL_VARIABLE, "")
        if not target.strip():
            raise BadInput(f"No server was named: pass a URL or set {URL_VARIABLE} ({FORMS}).")
    if isinstance(target, str):
        return list(_BETWEEN_URLS.split(target.strip()))
    if isinstance(target, redis.Redis):
        return [target]
    targets = list(target) if isinstance(target, Sequence) else [target]
    for one in targets:
        if not isinstance(one, (str, redis.Redis)):
            raise BadInput(f"A server is a URL ({FORMS}) or a redis.Redis client, not a {type(one)}.")
    if not targets:
        raise BadInput(f"No server was named: pass a URL ({FORMS}).")
    return targets


def _check_client(client: redis.Redis) -> redis.Redis:
    if client.connection_pool.connection_kwargs.get("decode_responses"):
        raise BadInput("The client decodes replies into text, but ids are bytes: open it without decode_responses.")
    return client


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
        raise not_a_url("a server's URL", url)
    options = _client_options()
    try:
        if scheme == "unix":
            del options["socket_keepalive"]
        elif not re.fullmatch(r"/?\d*", urlsplit(url).path):
            raise ValueError("its path is not a database number")
        client = redis.Redis.from_url(url, retry=Retry(NoBackoff(), 0), **options)
        pool = client.connection_pool
        pool.connection_class(**pool.connection_kwargs)  # does not connect, but refuses unknown options
    except (ValueError, TypeError, redis.RedisError) as error:
        raise not_a_url("a server's URL", url, error) from None
    return client


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
        raise not_a_url("a Sentinel's URL", url)
    try:
        query = parse_url(f"redis://?{parts.query}")  # numbers as numbers
        password_of_sentinels = query.pop("sentinel_password", None)
        common = {**_client_options(), **query, "retry": Retry(NoBackoff(), 0)}
        if parts.scheme.startswith("rediss"):
            common["ssl"] = True
        sentinel = Sentinel(addresses, sentinel_kwargs={**common, "password": password_of_sentinels})
        options = {**common, "db": database}
        if password:
            options |= {"username": unquote(user) or None, "password": unquote(password)}
        client: redis.Redis = sentinel.master_for(service, **options)
    except (ValueError, TypeError, redis.RedisError) as error:
        raise not_a_url("a Sentinel's URL", url, error) from None
    return client
