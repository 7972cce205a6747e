"""The settings of a namespace: stored at first use, the same for every client."""

from __future__ import annotations

import re
import reprlib
from dataclasses import asdict, dataclass, fields

from redis_acker.errors import BadInput, SettingsMismatch
from redis_acker.ids import MAX_BLOCK_SIZE

DEFAULT_BUCKETS = 3
"""Buckets a record passes through before it expires; more of them make timeouts more punctual."""

DEFAULT_TIMEOUT_MS = 30_000
"""Time a root has for its final event, as in Storm."""

DEFAULT_BLOCK_SIZE = 500
"""Most roots in a block. Twice as many make dense acks a few percent cheaper, and single acks to a block dearer."""

MAX_SHARDS = 16_384
MAX_BUCKETS = 64
MAX_TIMEOUT_MS = 30 * 24 * 3600 * 1000

_NAMESPACE = re.compile(r"[A-Za-z0-9_.-]{1,64}")


@dataclass(frozen=True)
class Settings:
    """Settings as a client wants them (None: whatever is stored) or as they are stored (no None)."""

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
        """Time between two rotations: a root expires between T and T + one tick after its init."""
        return -(-self.timeout_ms // (self.buckets - 1))

    def check(self, wanted: Settings, namespace: str) -> None:
        """Refuses a client that wants something else."""
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
        shards, buckets, timeout_ms, block_size, restarts = (int(value) for value in values)
        return cls(shards, buckets, timeout_ms, block_size, bool(restarts))

    @classmethod
    def names(cls) -> list[str]:
        return [field.name for field in fields(cls)]


def check_namespace(namespace: str) -> str:
    if not isinstance(namespace, str) or not _NAMESPACE.fullmatch(namespace):
        raise BadInput(
            f"A namespace is 1 to 64 letters, digits, '_', '.' or '-', and {reprlib.repr(namespace)} is not: choose "
            "another name."
        )
    return namespace


def _check(name: str, value: int | None, least: int, most: int) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most):
        raise BadInput(f"{name} must be a whole number from {least} to {most}, not {value!r}.")
