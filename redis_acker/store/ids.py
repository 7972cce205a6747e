"""Root and edge ids: how they are drawn, laid out and mapped to shards. Tokens: the ids of batches.

A root is spout (12 bits), sequence of its block (42), index in its block (10). A block is named by its root 0.
"""

from __future__ import annotations

import hashlib
import os
import reprlib
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from struct import pack
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from redis_acker.errors import BadInput
from redis_acker.store.keys import MAX_SPOUT

INDEX_BITS = 10
SEQUENCE_BITS = 42
SPOUT_BITS = MAX_SPOUT.bit_length()
MAX_BLOCK_SIZE = 1 << INDEX_BITS

BLOCK_BYTES = 8
NAME_BYTES = 8
_LAST_SEQUENCE = (1 << 32) - 1

_INDEX_MASK = np.uint64(MAX_BLOCK_SIZE - 1)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # multiplicative hashing: neighbours spread over all shards

U64Array: TypeAlias = NDArray[np.uint64]
Ids: TypeAlias = "int | Sequence[int] | NDArray[np.integer[Any]]"


def as_u64(values: Ids, name: str) -> U64Array:
    """One or many 64-bit values as an array. Signed values stand for the same 64 bits."""
    if isinstance(values, np.ndarray):
        if values.dtype == np.uint64 and values.ndim == 1:
            return values.view(np.uint64)
        if values.dtype == np.int64 and values.ndim == 1:
            return values.view(np.uint64)
        if values.ndim > 1 or not np.issubdtype(values.dtype, np.integer):
            raise BadInput(
                f"{name} must be a flat array of 64-bit integers, not {values.dtype} of shape {values.shape}."
            )
        return values.astype(np.int64).reshape(-1).view(np.uint64)
    if isinstance(values, (int, np.integer)):
        values = [values]
    # A set has no order, and roots and ack vals are matched by theirs.
    if isinstance(values, (str, bytes, set, frozenset)) or not isinstance(values, Iterable):
        raise BadInput(f"{name} must be an integer, a sequence of integers or an array, not {reprlib.repr(values)}.")
    return np.fromiter((_u64(value, name) for value in values), dtype=np.uint64)


def as_pairs(roots: Ids, ack_vals: Ids) -> tuple[U64Array, U64Array]:
    root_array, val_array = as_u64(roots, "roots"), as_u64(ack_vals, "ack_vals")
    if len(root_array) != len(val_array):
        raise BadInput(
            f"roots and ack_vals must have the same length: {len(root_array)} roots, {len(val_array)} ack vals."
        )
    return root_array, val_array


def _u64(value: object, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise BadInput(f"{name} must hold integers, not {reprlib.repr(value)}.")
    if not -(1 << 63) <= int(value) < 1 << 64:
        raise BadInput(f"{name} must fit in 64 bits, and {value} does not.")
    return int(value) & 0xFFFF_FFFF_FFFF_FFFF


def new_edges(count: int) -> U64Array:
    """Random edge ids, none of them zero: zero would be invisible in an XOR."""
    if isinstance(count, bool) or not isinstance(count, (int, np.integer)) or count < 0:
        raise BadInput(f"count must be a whole number of edges from 0 on, not {count!r}.")
    # The system's generator, not numpy's: forked workers must never draw the same ids.
    edges = np.frombuffer(os.urandom(8 * count), dtype=np.uint64)
    while not edges.all():
        edges = np.where(edges == 0, np.frombuffer(os.urandom(8 * count), dtype=np.uint64), edges)
    return edges


def new_edge() -> int:
    """One random edge id."""
    return int(new_edges(1)[0])


def make_roots(spout: int, first_sequence: int, count: int, block_size: int) -> U64Array:
    """The roots of the consecutive blocks that hold count roots."""
    return roots_at(spout, first_sequence, np.arange(count, dtype=np.uint64), block_size)


def roots_at(spout: int, first_sequence: int, places: NDArray[np.integer[Any]], block_size: int) -> U64Array:
    """The roots at some places among those of consecutive blocks."""
    block, index = np.divmod(places.astype(np.uint64), np.uint64(block_size))
    first = np.uint64(spout << (SEQUENCE_BITS + INDEX_BITS) | first_sequence << INDEX_BITS)
    return first + (block << np.uint64(INDEX_BITS)) + index


def blocks_of(roots: U64Array) -> U64Array:
    return roots & ~_INDEX_MASK


def indexes_of(roots: U64Array) -> U64Array:
    return roots & _INDEX_MASK


def sequence_of(root: int) -> int:
    """The place of a root's block among those of its spout."""
    return (root >> INDEX_BITS) & ((1 << SEQUENCE_BITS) - 1)


def spout_of(root: int) -> int:
    return root >> (SEQUENCE_BITS + INDEX_BITS)


def spouts_of(roots: U64Array) -> U64Array:
    return roots >> np.uint64(SEQUENCE_BITS + INDEX_BITS)


def shards_of(blocks: U64Array, shards: int) -> NDArray[np.int64]:
    """The shard of each block; every client computes the same."""
    hashed = (blocks >> np.uint64(INDEX_BITS)) * _GOLDEN
    return ((hashed >> np.uint64(32)) % np.uint64(shards)).astype(np.int64)


# -- tokens --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Token:
    """Names a batch of ack vals: by its sender, or by a name of its own, and its place among the batches of that name.

    For each name, a block remembers the highest sequence it has seen, and ignores that one and all below.
    """

    name: bytes
    sequence: int

    def __post_init__(self) -> None:
        if len(self.name) != NAME_BYTES or not 0 <= self.sequence <= _LAST_SEQUENCE:
            raise BadInput(
                f"A token has a name of {NAME_BYTES} bytes and a sequence below 2**32, not {self.name!r} and "
                f"{self.sequence!r}: use Token.of() for a name of any length."
            )

    @classmethod
    def of(cls, text: str | bytes) -> Token:
        """The token of a batch with a name of its own, such as 'run 7, step split'."""
        data = text.encode(errors="surrogatepass") if isinstance(text, str) else text
        if not isinstance(data, bytes) or not data:
            raise BadInput(f"A token must be a text that is not empty, not {reprlib.repr(text)}.")
        return cls(hashlib.blake2b(data, digest_size=NAME_BYTES).digest(), 0)

    def packed(self) -> bytes:
        return self.name + pack(">I", self.sequence)


class Sessions(threading.local):
    """Tokens for batches without a name of their own: a random name per thread and process, and a running number.

    A thread waits for the reply to a batch before it sends the next, so one sequence number per name is enough. A
    forked process, and a thread that does not know whether its batch was applied, continue under a new name.
    """

    _name: bytes | None = None
    _pid = 0
    _sequence = 0

    def next(self) -> Token:
        if self._name is None or self._pid != os.getpid() or self._sequence == _LAST_SEQUENCE:
            self._name, self._pid, self._sequence = os.urandom(NAME_BYTES), os.getpid(), 0
        self._sequence += 1
        return Token(self._name, self._sequence)

    def renew(self) -> None:
        self._name = None
