"""Ack vals, message ids and attempts that are hard on their encodings."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from redis_acker.store.message_ids import MessageId

TOP_BIT = 1 << 63
ALL_BITS = (1 << 64) - 1

ID_LAYOUTS = ("none", "range", "wrapped range", "integers", "fixed text", "text", "fixed bytes", "bytes")


def ack_val(random: Random) -> int:
    """Not zero; often with the top bit, or with so few bits that neighbours make long runs of zero bytes."""
    return random.choice(
        (
            lambda: random.getrandbits(64) | TOP_BIT,
            lambda: random.getrandbits(64) or 1,
            lambda: 1 << random.randrange(64),
            lambda: random.choice((TOP_BIT, ALL_BITS, 1 << 53 | 1, 1, 256)),
        )
    )()


def one_bit_off(value: int, random: Random) -> int:
    """A near miss of the value, and not zero."""
    return value ^ 1 << random.randrange(64) or ack_val(random)


def message_ids(layout: str, count: int, random: Random) -> Sequence[MessageId] | None:
    if layout == "none":
        return None
    if layout == "range":
        first = random.randrange(-(1 << 62), 1 << 62)
        return list(range(first, first + count))
    if layout == "integers":
        return [random.getrandbits(64) - TOP_BIT for _ in range(count)]
    if layout == "wrapped range":  # from the highest integer on to the lowest: no range
        first = TOP_BIT - 1 - random.randrange(count)
        return [one if one < TOP_BIT else one - 2 * TOP_BIT for one in range(first, first + count)]
    if layout == "fixed text":
        return [f"order-{random.randrange(10**9):09d}" for _ in range(count)]
    if layout == "text":
        return ["".join(random.choices("ab:\0é€", k=random.randrange(12))) for _ in range(count)]
    if layout == "fixed bytes":
        return [random.randbytes(7) for _ in range(count)]
    return [random.randbytes(random.randrange(40)) for _ in range(count)]


def attempts(kind: str, count: int, random: Random) -> int | list[int]:
    """first, later (one number for all) or mixed."""
    if kind == "mixed":
        return [random.choice((1, 2, 3, 255, 256, 65534)) for _ in range(count)]
    return 1 if kind == "first" else random.randrange(2, 100)
