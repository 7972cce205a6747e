"""Brings each task to a partition of its own.

repartition(n, column) hashes the column. So the column gets numbers of which Spark's hash is known: without them two
tasks would often share a partition while another stays empty. Only the balance rests on this, never what is computed.
"""

from __future__ import annotations

from functools import cache
from itertools import count

_SEED = 42
_MASK = 0xFFFF_FFFF


@cache
def partition_keys(partitions: int) -> list[int]:
    """For each partition a number that repartition(partitions, column) brings there."""
    found: dict[int, int] = {}
    for number in count():
        found.setdefault(spark_hash(number) % partitions, number)
        if len(found) == partitions:
            return [found[partition] for partition in range(partitions)]
    raise AssertionError


def spark_hash(number: int) -> int:
    """Spark's hash() of an int column: Murmur3 of its 4 bytes, signed."""
    k = _rotate(number * 0xCC9E2D51 & _MASK, 15) * 0x1B873593 & _MASK
    h = (_rotate(_SEED ^ k, 13) * 5 + 0xE6546B64 & _MASK) ^ 4
    h = (h ^ h >> 16) * 0x85EBCA6B & _MASK
    h = (h ^ h >> 13) * 0xC2B2AE35 & _MASK
    h ^= h >> 16
    return h - (1 << 32) if h >> 31 else h


def _rotate(word: int, bits: int) -> int:
    return (word << bits | word >> 32 - bits) & _MASK
