"""Opens a namespace on its servers: settings stored at first use, disagreement refused, spouts numbered."""

from __future__ import annotations

import warnings

import redis

from redis_acker.connect import Servers
from redis_acker.errors import BadInput, SettingsMismatch, UnknownNamespace, UnsupportedServer
from redis_acker.ids import MAX_SPOUT
from redis_acker.keys import ShardKeys
from redis_acker.settings import Settings, StoredSettings
from redis_acker.transport import Argument, Command, Transport

LEAST_VERSION = (6, 2)


class EvictionWarning(UserWarning):
    """Issued when the server may throw pending roots away."""


def open_namespace(
    servers: Servers, transport: Transport, namespace: str, wanted: Settings, *, create: bool, now_ms: Argument
) -> StoredSettings:
    """The settings of the namespace; stores the wanted ones, or defaults, where there are none yet."""
    for server in range(servers.count()):
        _check_server(servers.client(server), servers.describe(server))
    stored = _read(servers, transport, namespace)
    if stored is None and not create:
        raise UnknownNamespace(f"Namespace {namespace!r} does not exist on these servers: check its name and the URL.")
    settings = stored or wanted.with_defaults(servers.default_shards)
    if settings.shards < servers.count():
        raise SettingsMismatch(
            f"Namespace {namespace!r} has shards={settings.shards}, too few for {servers.count()} servers: name as "
            "many servers as it was made for, or make one with more shards."
        )
    settings.check(wanted, namespace)
    _store(transport, namespace, settings, [int(create), now_ms])
    return settings


def _read(servers: Servers, transport: Transport, namespace: str) -> StoredSettings | None:
    """What is stored in shard 0, after a look whether the servers are named in the order they were at first use."""
    names = StoredSettings.names()
    key = ShardKeys(namespace, 0, 0).meta
    replies = transport.run([Command(server, ("HMGET", key, *names)) for server in range(servers.count())])
    for server, values in enumerate(replies):
        if server > 0 and values[0] is not None:
            raise SettingsMismatch(
                f"Shard 0 of namespace {namespace!r} is on server {server + 1} of the {servers.count()} named: name "
                "the servers in the order in which they were named at first use."
            )
    return StoredSettings.from_values(replies[0]) if replies[0][0] is not None else None


def _store(transport: Transport, namespace: str, settings: StoredSettings, first: list[Argument]) -> None:
    """Writes the settings into every shard that has none, and checks those that have."""
    pairs: list[Argument] = [part for pair in settings.to_fields() for part in pair]
    commands = [
        Command.call("open", shard, [ShardKeys(namespace, shard, 0).meta], [*first, *pairs])
        for shard in range(settings.shards)
    ]
    for shard, values in enumerate(transport.run(commands)):
        if values[0] is None:
            raise SettingsMismatch(
                f"Shard {shard} of namespace {namespace!r} is missing: name all {settings.shards} shards' servers, in "
                "the order in which they were named at first use."
            )
        StoredSettings.from_values(values).check(settings.as_wanted(), namespace)


def spout_number(transport: Transport, namespace: str, name: str) -> int:
    """The number of a spout, given to it at first use."""
    if not isinstance(name, str) or not 0 < len(name.encode()) <= 255:
        raise BadInput(f"A spout's name is a text of 1 to 255 bytes, not {name!r}.")
    keys = [ShardKeys(namespace, 0, 0).spouts]
    number: int = transport.run_one(Command.call("spout", 0, keys, [name, MAX_SPOUT]))
    if number == 0:
        raise BadInput(
            f"Namespace {namespace!r} has {MAX_SPOUT} spouts already, so {name!r} gets no number: use the same spout "
            "names from run to run."
        )
    return number


def spout_names(transport: Transport, namespace: str) -> dict[int, str]:
    """Spout names by number."""
    flat = transport.run_one(Command(0, ("HGETALL", ShardKeys(namespace, 0, 0).spouts)))
    return {int(number): name.decode() for name, number in zip(flat[::2], flat[1::2], strict=True)}


def _check_server(client: redis.Redis, description: str) -> None:
    try:
        info = client.info()
    except redis.RedisError:
        return  # unreachable: the first real command says so better; or INFO is not allowed to this user
    version = str(info.get("redis_version", "0"))
    if tuple(int(part) for part in version.split(".")[:2]) < LEAST_VERSION:
        raise UnsupportedServer(f"{description} has version {version}: use Redis 6.2 or later, or Valkey.")
    policy = str(info.get("maxmemory_policy", "noeviction"))
    if info.get("maxmemory") and policy != "noeviction":
        warnings.warn(
            f"{description} evicts keys when memory is full (maxmemory-policy {policy}), which loses pending roots "
            "without a trace: set maxmemory-policy noeviction.",
            EvictionWarning,
            stacklevel=4,
        )
