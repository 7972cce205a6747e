"""A namespace: its settings, stored at first use and the same for every client."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from typing import Any

from redis_acker.errors import (
    AccessDenied,
    BadInput,
    EvictionWarning,
    ScriptFailed,
    SettingsMismatch,
    UnknownNamespace,
    Unreadable,
    UnsupportedServer,
)
from redis_acker.store.connect import Servers
from redis_acker.store.hashes import number_of
from redis_acker.store.ids import MAX_BLOCK_SIZE
from redis_acker.store.keys import MAX_SHARDS
from redis_acker.store.shards import Shards
from redis_acker.store.shards_plain import read_info, read_meta
from redis_acker.store.transport import Transport

DEFAULT_BUCKETS = 3
"""Buckets that a record passes through before it expires: with more of them, timeouts are more punctual."""

DEFAULT_TIMEOUT_MS = 30_000
"""How long a root may stay pending, as in Storm."""

DEFAULT_BLOCK_SIZE = 500
"""Most roots in a block. With twice as many, dense acks cost a few percent less, and single acks more."""

MAX_BUCKETS = 64
MAX_TIMEOUT_MS = 30 * 24 * 3600 * 1000

LEAST_VERSION = (6, 2)

_SERVERS = "servers"
"""Stored beside the settings: the number of servers that share the shards."""

_SHARDS_LOOKED_FOR = 16
"""Shards to look for on every server, to notice servers that are missing or named in another order."""


@dataclass(frozen=True)
class Settings:
    """Settings as a client wants them. None: whatever is stored, or the default."""

    shards: int | None = None
    buckets: int | None = None
    timeout_ms: int | None = None
    block_size: int | None = None
    ack_restarts_clock: bool | None = None

    def __post_init__(self) -> None:
        _check("shards", self.shards, 1, MAX_SHARDS)
        _check("buckets", self.buckets, 2, MAX_BUCKETS)
        _check("timeout_ms", self.timeout_ms, 1, MAX_TIMEOUT_MS)
        _check("block_size", self.block_size, 1, MAX_BLOCK_SIZE)
        if not (self.ack_restarts_clock is None or isinstance(self.ack_restarts_clock, bool)):
            raise BadInput(f"ack_restarts_clock must be True or False, not {self.ack_restarts_clock!r}.")

    def with_defaults(self, shards: int) -> StoredSettings:
        return StoredSettings(
            shards=self.shards or shards,
            buckets=self.buckets or DEFAULT_BUCKETS,
            timeout_ms=self.timeout_ms or DEFAULT_TIMEOUT_MS,
            block_size=self.block_size or DEFAULT_BLOCK_SIZE,
            ack_restarts_clock=bool(self.ack_restarts_clock),
        )


@dataclass(frozen=True)
class StoredSettings:
    """The settings of a namespace as they are stored."""

    shards: int
    buckets: int
    timeout_ms: int
    block_size: int
    ack_restarts_clock: bool

    @property
    def tick_ms(self) -> int:
        """Time between two rotations: a root expires between the timeout and one tick later."""
        return -(-self.timeout_ms // (self.buckets - 1))

    def check(self, wanted: Settings, namespace: str) -> None:
        """Refuses a client that wants other settings."""
        for field in fields(self):
            stored, asked = getattr(self, field.name), getattr(wanted, field.name)
            if asked is not None and asked != stored:
                raise SettingsMismatch(
                    f"Namespace {namespace!r} has {field.name}={stored}, but this client asks for "
                    f"{field.name}={asked}: use {stored}, leave the setting out, or take another namespace."
                )

    def as_wanted(self) -> Settings:
        return Settings(**asdict(self))

    def to_fields(self) -> list[tuple[str, int]]:
        return [(field.name, int(getattr(self, field.name))) for field in fields(self)]

    @classmethod
    def from_values(cls, values: list[bytes]) -> StoredSettings:
        """Raises Unreadable for what no client has stored."""
        shards, buckets, timeout_ms, block_size, _ = map(number_of, values)
        try:
            Settings(shards, buckets, timeout_ms, block_size)
            return cls(shards, buckets, timeout_ms, block_size, {b"0": False, b"1": True}[values[4]])
        except (BadInput, KeyError):
            shown = ", ".join(f"{name}={value[:30]!r}" for name, value in zip(cls.names(), values, strict=True))
            raise Unreadable(
                f"The stored settings of the namespace make no sense ({shown}), so another program wrote to it: "
                "write them back, or use another namespace."
            ) from None

    @classmethod
    def names(cls) -> list[str]:
        return [field.name for field in fields(cls)]


def _check(name: str, value: int | None, least: int, most: int) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most):
        raise BadInput(f"{name} must be a whole number from {least} to {most}, not {value!r}.")


# -- opening -------------------------------------------------------------------------------------------------------


def open_namespace(
    servers: Servers,
    transport: Transport,
    namespace: str,
    wanted: Settings,
    *,
    create: bool,
    clock: Callable[[], int] | None = None,
) -> Shards:
    """The shards of the namespace. Where it has no settings yet, create=True stores the wanted ones and defaults."""
    for server in range(servers.count()):
        _check_server(_info(transport, server), servers.describe(server))
    stored = _read(servers, transport, namespace)
    if stored is None and not create:
        raise UnknownNamespace(f"Namespace {namespace!r} does not exist on these servers: check its name and the URL.")
    settings = stored or wanted.with_defaults(servers.default_shards)
    if settings.shards < servers.count():
        raise SettingsMismatch(
            f"Namespace {namespace!r} has shards={settings.shards}, too few for {servers.count()} servers: name as "
            "many servers as it was created for, or create one with more shards."
        )
    settings.check(wanted, namespace)
    shards = Shards(transport, namespace, settings, clock=clock)
    store_settings(shards, servers, namespace, create=create)
    if create:  # executors, which never create, may do neither
        transport.load_scripts()
        with suppress(AccessDenied):
            shards.note_histories()
    transport.limit_retries(settings.timeout_ms / 2000)
    return shards


def _read(servers: Servers, transport: Transport, namespace: str) -> StoredSettings | None:
    """What is stored. Refuses servers other than those of the first use, or in another order."""
    count = servers.count()
    names = [*StoredSettings.names(), _SERVERS]
    places = [(shard, server) for server in range(count) for shard in range(max(_SHARDS_LOOKED_FOR, count))]
    # Separate servers can be asked for a shard that belongs elsewhere; nodes of a cluster cannot.
    asked = ((shard, server if count > 1 else shard) for shard, server in places)
    replies: list[Any] = read_meta(transport, namespace, asked, names)
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
    if number_of(stored) != count:
        raise SettingsMismatch(
            f"Namespace {namespace!r} is spread over {number_of(stored)} servers, but this client names {count}: name "
            "the same servers, in the order in which they were named at first use."
        )


def store_settings(shards: Shards, servers: Servers, namespace: str, *, create: bool) -> None:
    """Writes the settings into every shard that has none, and checks those that have."""
    settings, server_count = shards.settings, servers.count()
    values = [*settings.to_fields(), (_SERVERS, server_count)]
    # Shard 0 first: it decides between clients that create the namespace at the same time with different settings.
    for first, end in ((0, 1), (1, len(shards))):
        _check_stored(shards.open(first, end, values, create=create), first, server_count, namespace, settings)


def _check_stored(
    replies: list[list[Any]], first_shard: int, server_count: int, namespace: str, settings: StoredSettings
) -> None:
    for shard, (*values, stored_count) in enumerate(replies, first_shard):
        if values[0] is None:
            raise SettingsMismatch(
                f"Shard {shard} of namespace {namespace!r} is missing: name all {settings.shards} shards' servers, in "
                "the order in which they were named at first use."
            )
        StoredSettings.from_values(values).check(settings.as_wanted(), namespace)
        _check_count(stored_count, server_count, namespace)


def _info(transport: Transport, server: int) -> dict[str, str]:
    """What the server says about itself; empty where this user may not ask."""
    try:
        text = read_info(transport, server)
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
            stacklevel=5,  # the line that opened the Acker
        )
