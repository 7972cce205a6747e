"""From URLs to clients: one server, several, a cluster, Sentinel, or a private embedded server."""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import parse_qsl, unquote, urlsplit

import redis
from redis.backoff import NoBackoff
from redis.cluster import RedisCluster
from redis.exceptions import AuthenticationError, AuthorizationError, NoPermissionError, RedisClusterException
from redis.retry import Retry
from redis.sentinel import Sentinel

from redis_acker.errors import BadInput

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
        self._lock = threading.Lock()
        self._cluster: RedisCluster | None = None

    def client(self, shard: int) -> redis.Redis:
        cluster = self._open()
        return cluster.get_redis_connection(cluster.get_node_from_key(self._tag_of(shard)))

    def refresh(self) -> None:
        with contextlib.suppress(redis.RedisError, RedisClusterException):  # the next attempt finds out
            if self._cluster:
                self._cluster.nodes_manager.initialize()

    def describe(self, shard: int) -> str:
        return f"The cluster {hide_password(self.urls[0])}"

    def close(self) -> None:
        if self._cluster:
            self._cluster.close()

    def _open(self) -> RedisCluster:
        """Connects at the first use: a cluster that is not up yet is then waited for like any other server."""
        if self._cluster is None:
            with self._lock:
                self._cluster = self._cluster or self._connect()
        return self._cluster

    def _connect(self) -> RedisCluster:
        url = self.urls[0]
        try:
            return RedisCluster.from_url(url.replace("+cluster", "", 1), **_client_options())
        except (ValueError, TypeError) as error:
            raise BadInput(f"{hide_password(url)!r} is not a cluster's URL{_why(url, error)}: use {_FORMS}.") from None
        except RedisClusterException as error:
            if isinstance(error.__cause__, (AuthenticationError, AuthorizationError, NoPermissionError)):
                raise error.__cause__ from None
            if "cannot be connected" not in str(error) or "Cluster mode is not enabled" in str(error):
                raise BadInput(f"{hide_password(url)!r} names no cluster ({error}): use {_FORMS}.") from None
            raise


def open_servers(target: Target | Sequence[Target] | None, tag_of: Callable[[int], str]) -> Servers:
    """Connects to what a URL, several URLs, redis-py clients or the environment name."""
    targets = _split(target)
    urls = [one for one in targets if isinstance(one, str)]
    if not urls:
        return Fleet([_check_client(one) for one in targets if isinstance(one, redis.Redis)], [])
    if len(urls) != len(targets):
        raise BadInput("Pass either URLs or redis-py clients, not both.")
    if len(set(urls)) != len(urls):
        raise BadInput("A server is named twice: name each once. One server can hold any number of shards.")
    if any("+cluster://" in url for url in urls):
        if len(urls) > 1:
            raise BadInput("Pass one URL for a cluster: its nodes tell each other's addresses.")
        return Cluster(urls[0], tag_of)
    if "embedded" in urls:
        if len(urls) > 1:
            raise BadInput("An embedded server stands alone: pass 'embedded', or the URLs of servers.")
        from redis_acker.embedded import EmbeddedServer

        server = EmbeddedServer()
        return Fleet([_open(server.url)], [server.url], server)
    return Fleet([_open(url) for url in urls], urls)


def hide_password(url: str) -> str:
    """The URL as it may be shown."""
    return re.sub(r"(?<=://)([^:@/]*):.*@", r"\1:***@", re.sub(r"(password=)[^&]*", r"\1***", url))


def _split(target: Target | Sequence[Target] | None) -> list[Target]:
    if target is None:
        target = os.environ.get(URL_VARIABLE, "")
        if not target.strip():
            raise BadInput(f"No server was named: pass a URL or set {URL_VARIABLE} ({_FORMS}).")
    if isinstance(target, str):
        return list(_BETWEEN_URLS.split(target.strip()))
    if isinstance(target, redis.Redis):
        return [target]
    targets = list(target) if isinstance(target, Sequence) else [target]
    for one in targets:
        if not isinstance(one, (str, redis.Redis)):
            raise BadInput(f"A server is named by a URL ({_FORMS}) or is a redis.Redis client, not a {type(one)}.")
    if not targets:
        raise BadInput(f"No server was named: pass a URL ({_FORMS}).")
    return targets


def _check_client(client: redis.Redis) -> redis.Redis:
    if client.connection_pool.connection_kwargs.get("decode_responses"):
        raise BadInput("The client decodes replies into text, and ids are bytes: open it without decode_responses.")
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
        raise BadInput(f"{hide_password(url)!r} is not a server's URL: use {_FORMS}.")
    options = _client_options()
    try:
        if scheme == "unix":
            del options["socket_keepalive"]
        elif not re.fullmatch(r"/?\d*", urlsplit(url).path):
            raise ValueError("its path is not the number of a database")
        client = redis.Redis.from_url(url, retry=Retry(NoBackoff(), 0), **options)
        pool = client.connection_pool
        pool.connection_class(**pool.connection_kwargs)  # which does not connect, but refuses unknown options
    except (ValueError, TypeError) as error:
        raise BadInput(f"{hide_password(url)!r} is not a server's URL{_why(url, error)}: use {_FORMS}.") from None
    return client


def _why(url: str, error: Exception) -> str:
    """What the parser says, unless it may quote a piece of a password."""
    return "" if "@" in url else f" ({error})"


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
    password_of_sentinels = query.pop("sentinel_password", None)
    common = {**_client_options(), **query, "retry": Retry(NoBackoff(), 0)}
    if parts.scheme.startswith("rediss"):
        common["ssl"] = True
    sentinel = Sentinel(addresses, sentinel_kwargs={**common, "password": password_of_sentinels})
    options = {**common, "db": database}
    if password:
        options |= {"username": unquote(user) or None, "password": unquote(password)}
    client: redis.Redis = sentinel.master_for(service, **options)
    return client
