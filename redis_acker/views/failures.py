"""Why messages failed recently: those whose failure nobody has dealt with yet, those that wait for their next attempt,
and those that were given up. What is complete by now is not among them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

from redis_acker.errors import Unreadable
from redis_acker.retries.book import DeadLetter, FailedAttempt, Retry
from redis_acker.store.streams import Failure, parse_entry

if TYPE_CHECKING:
    from redis_acker.store.acker import Acker
    from redis_acker.views.overview import SpoutView

MOST_SPOUTS = 20
"""Spouts that are looked at: those with the most failures."""

MOST_EACH = 50
"""Entries of a shard, retries and letters of a spout that are looked at."""


Cause: TypeAlias = tuple[str, str, str]
"""Reason, component and error."""


@dataclass(frozen=True)
class FailureGroup:
    """Failures with the same cause."""

    reason: str
    component: str
    error: str
    spouts: list[str]
    """Those with the most failures first."""
    count: int
    last_ms: int
    """When the last of them happened."""


def read_failures(acker: Acker, spouts: Iterable[SpoutView]) -> list[FailureGroup]:
    """Groups of a bounded sample, the last first: it costs the same however many there are."""
    numbers = acker.known_spouts()
    failing = [one for one in spouts if one.unread_failures + one.retries + one.dead and one.name in numbers]
    failing.sort(key=lambda one: -(one.unread_failures + one.retries + one.dead))
    groups: dict[Cause, tuple[Counter[str], int]] = {}
    for spout in failing[:MOST_SPOUTS]:
        for cause, amount, at_ms in _causes(acker, numbers[spout.name], spout):
            counts, last_ms = groups.get(cause, (Counter(), 0))
            counts[spout.name] += amount
            groups[cause] = (counts, max(last_ms, at_ms))
    found = [
        FailureGroup(*cause, [name for name, _ in counts.most_common()], counts.total(), last_ms)
        for cause, (counts, last_ms) in groups.items()
    ]
    return sorted(found, key=lambda one: -one.last_ms)


def _causes(acker: Acker, number: int, spout: SpoutView) -> Iterator[tuple[Cause, int, int]]:
    """Why, how many roots, and when."""
    for shard in range(acker.settings.shards if spout.unread_failures else 0):
        for entry, fields in islice(acker.shards.entries("failures", number, shard, newest_first=True), MOST_EACH):
            try:
                failure = parse_entry("failures", shard, entry, fields)
            except Unreadable:
                continue  # its reader sets it aside
            assert isinstance(failure, Failure)
            yield (failure.reason, failure.component, failure.error), len(failure.roots), failure.at_ms
    for one in _last_attempts(acker, number, spout):
        yield (one.reason, one.component, one.error), 1, one.at_ms


def _last_attempts(acker: Acker, number: int, spout: SpoutView) -> Iterator[FailedAttempt]:
    """Of messages in the first page of the retry book and of the dead letters."""
    retries = next(acker.shards.retries(number).pages(MOST_EACH)) if spout.retries else []
    letters = next(acker.shards.dead(number).pages(MOST_EACH)) if spout.dead else []
    for _, value in retries:
        with suppress(Unreadable):
            yield from Retry.from_json(value).history[-1:]
    for name, value in letters:
        with suppress(Unreadable):
            yield DeadLetter.from_json(spout.name, name, value).history[-1]
