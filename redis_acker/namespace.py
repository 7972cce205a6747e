"""Opens a namespace on its servers: settings stored at first use, disagreement refused, spouts numbered."""

from __future__ import annotations

import reprlib
import warnings
import zlib

from redis_acker.connect import Servers
from redis_acker.errors import (
    AccessDenied,
    BadInput,
    ScriptFailed,
    SettingsMismatch,
    UnknownNamespace,
    UnsupportedServer,
)
from redis_acker.ids import MAX_SPOUT
from redis_acker.keys import ShardKeys
from redis_acker.settings import Settings, StoredSettings
from redis_acker.transport import Argument, Command, Transport

LEAST_VERSION = (6, 2)

_SERVERS = "servers"
"""Stored beside the settings: among how many servers the shards are dealt out."""

_SHARDS_LOOKED_FOR = 16
"""Shards looked for on every server, to notice servers that are left out or named in another order."""


class EvictionWarning(UserWarning):
    """Issued when the server may throw pending roots away."""


def open_namespace(
    servers: Servers, transport: Transport, namespace: str, wanted: Settings, *, create: bool, now_ms: Argument
) -> StoredSettings:
    """The settings of the namespace; stores the wanted ones, or defaults, where there are none yet."""
    for server in range(servers.count()):
        _check_server(_info(transport, server), servers.describe(server))
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
    _store(servers, transport, namespace, settings, [int(create), now_ms])
    return settings


def _read(servers: Servers, transport: Transport, namespace: str) -> StoredSettings | None:
    """What is stored, after a look whether the same servers are named, in the order they were at first use."""
    count = servers.count()
    names = [*StoredSettings.names(), _SERVERS]
    places = [(shard, server) for server in range(count) for shard in range(max(_SHARDS_LOOKED_FOR, count))]
    replies = transport.run(
        # Only separate servers can be asked for a shard that belongs elsewhere.
        Command(server if count > 1 else shard, ("HMGET", ShardKeys(namespace, shard, 0).meta, *names))
        for shard, server in places
    )
    found = {place: values for place, values in zip(places, replies, strict=True) if values[0] is not None}
    for *_, stored_count in found.values():
        _check_count(stored_count, count, namespace)
    for shard, server in found:
        if server != shard % count:
            raise SettingsMismatch(
                f"Shard {shard} of namespace {namespace!r} is on server {server + 1} of the {count} named, not on "
                f"server {shard % count + 1}: name the servers in the order in which they were named at first use."
            )
    # Any shard will do: the server of shard 0 may have lost its data.
    return next((StoredSettings.from_values(values[:-1]) for values in found.values()), None)


def _check_count(stored: bytes, count: int, namespace: str) -> None:
    if int(stored) != count:
        raise SettingsMismatch(
            f"Namespace {namespace!r} is spread over {int(stored)} servers, but this client names {count}: name the "
            "same servers, in the order in which they were named at first use."
        )


def _store(
    servers: Servers, transport: Transport, namespace: str, settings: StoredSettings, first: list[Argument]
) -> None:
    """Writes the settings into every shard that has none, and checks those that have."""
    fields = [*settings.to_fields(), (_SERVERS, servers.count())]
    pairs: list[Argument] = [part for pair in fields for part in pair]
    commands = [
        Command.call("open", shard, [ShardKeys(namespace, shard, 0).meta], [*first, *pairs])
        for shard in range(settings.shards)
    ]
    # Shard 0 first: of several clients that open the namespace at once with other settings, it takes one.
    _check_stored(transport.run(commands[:1]), 0, servers.count(), namespace, settings)
    _check_stored(transport.run(commands[1:]), 1, servers.count(), namespace, settings)


def _check_stored(
    replies: list[list[bytes]], first_shard: int, server_count: int, namespace: str, settings: StoredSettings
) -> None:
    for shard, (*values, stored_count) in enumerate(replies, first_shard):
        if values[0] is None:
            raise SettingsMismatch(
                f"Shard {shard} of namespace {namespace!r} is missing: name all {settings.shards} shards' servers, in "
                "the order in which they were named at first use."
            )
        StoredSettings.from_values(values).check(settings.as_wanted(), namespace)
        _check_count(stored_count, server_count, namespace)


def spout_number(transport: Transport, namespace: str, name: str) -> int:
    """The number of a spout, given to it at first use."""
    if not 0 < len(_encoded(name)) <= 255:
        raise BadInput(f"A spout's name is a text of 1 to 255 bytes, not {reprlib.repr(name)}.")
    keys = [ShardKeys(namespace, 0, 0).spouts]
    number: int = transport.run_one(Command.call("spout", 0, keys, [name, _first_choice(name), MAX_SPOUT]))
    if number == 0:
        raise BadInput(
            f"Namespace {namespace!r} has {MAX_SPOUT} spouts already, so {name!r} gets no number: use the same spout "
            "names from run to run."
        )
    return number


def _encoded(name: object) -> bytes:
    """The bytes of a name; none of what is no text, or text that UTF-8 cannot hold."""
    try:
        return name.encode() if isinstance(name, str) else b""
    except UnicodeEncodeError:
        return b""


def _first_choice(name: str) -> int:
    """The number a spout gets unless another has it."""
    return zlib.crc32(name.encode()) % MAX_SPOUT + 1


def spout_names(transport: Transport, namespace: str) -> dict[int, str]:
    """Spout names by number."""
    flat = transport.run_one(Command(0, ("HGETALL", ShardKeys(namespace, 0, 0).spouts)))
    return {int(number): name.decode() for name, number in zip(flat[::2], flat[1::2], strict=True)}


def _info(transport: Transport, server: int) -> dict[str, str]:
    """What the server says of itself; nothing where this user may not ask."""
    try:
        text = transport.run_one(Command(server, ("INFO",))).decode(errors="replace")
    except (AccessDenied, ScriptFailed):
        return {}
    pairs = (line.partition(":") for line in text.splitlines())
    return {name: value for name, separator, value in pairs if separator}


def _check_server(info: dict[str, str], description: str) -> None:
    version = info.get("redis_version")
    if version and tuple(int(part) for part in version.split(".")[:2]) < LEAST_VERSION:
        raise UnsupportedServer(f"{description} has version {version}: use Redis 6.2 or later, or Valkey.")
    policy = info.get("maxmemory_policy", "noeviction")
    if info.get("maxmemory", "0") != "0" and policy.startswith("allkeys"):  # the others spare keys without expiry
        warnings.warn(
            f"{description} evicts keys when memory is full (maxmemory-policy {policy}), which loses pending roots "
            "without a trace: set maxmemory-policy noeviction.",
            EvictionWarning,
            stacklevel=5,
        )
