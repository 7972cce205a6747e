"""What a namespace holds, as DataFrames: pending roots, failed messages, dead letters, counters. Reads as the command
line does, page by page; each shard, or each spout, is read by a task of its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    InputPartition,
)
from pyspark.sql.types import StructType

from redis_acker import Acker, DeadLetters
from redis_acker.errors import Unreadable
from redis_acker.retries.book import Request
from redis_acker.retries.failed_roots import FailedRoot
from redis_acker.store.message_ids import MessageId, id_to_text
from redis_acker.store.streams import Failure, parse_entry
from redis_acker.views.overview import read_overview
from redis_acker.views.texts import root_text
from spark_integration.errors import BadFrame
from spark_integration.sources.address import ServerAddress
from spark_integration.sources.options import ViewOptions

_PENDING = "root string, spout string, message_id string, attempt integer, age_ms long, shard integer, bucket integer"
_FAILED = (
    "state string, spout string, message_id string, attempt integer, reason string, component string, error string, "
    "fatal boolean, at_ms long, due_ms long, root string, shard integer"
)
_DEAD = (
    "spout string, message_id string, attempt integer, reason string, component string, error string, fatal boolean, "
    "at_ms long, history string, payload string, stream string, is_readable boolean"
)
_STATS = (
    "spout string, pending long, initialised long, completed long, failed long, timeout long, replayed long, "
    "buried long, retries long, dead long, unread_completions long, unread_failures long, oldest_ms long, "
    "latency_p50_ms long, latency_p99_ms long, driver string, paused_ms long, lag long, micro_batches long"
)


def _schema(text: str) -> StructType:
    """As StructType.fromDDL(), which needs a session, and workers have none."""
    made = StructType()
    for column in text.split(", "):
        name, kind = column.split(" ")
        made = made.add(name, kind)
    return made


SCHEMAS = {"pending": _schema(_PENDING), "failed": _schema(_FAILED), "dead": _schema(_DEAD), "stats": _schema(_STATS)}


@dataclass
class ViewPartition(InputPartition):
    """A shard, or a spout whose messages are all in one place."""

    shard: int | None = None
    spout: str | None = None


class ViewReader(DataSourceReader):
    """Reads one view."""

    def __init__(self, address: ServerAddress, options: ViewOptions, schema: StructType) -> None:
        if schema.fieldNames() != SCHEMAS[options.view].fieldNames():
            raise BadFrame(f"The view {options.view!r} has columns of its own: leave out schema().")
        self._address, self._options = address, options
        self._shard: int | None = None
        self._nothing = False

    def partitions(self) -> list[InputPartition]:
        acker = self._address.acker(self._options.namespace)
        spouts = list(acker.known_spouts(None if self._nothing else self._options.spout))
        if self._nothing:
            return []
        shards = [ViewPartition(shard=one) for one in range(acker.settings.shards) if self._shard in (None, one)]
        kept = [ViewPartition(spout=one) for one in spouts]  # in shard 0, whatever is asked for
        by_view = {"pending": shards, "failed": [*shards, *kept], "dead": kept, "stats": [ViewPartition()]}
        return list(by_view[self._options.view])

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        if isinstance(partition, ViewPartition):  # else there is nothing to read
            acker = self._address.acker(self._options.namespace)
            yield from _READ[self._options.view](acker, self._options, partition)


class FilteringReader(ViewReader):
    """Reads less where a query needs less. Spark filters what is read all the same."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        for one in filters:
            self._narrow(one)
        return filters

    def _narrow(self, one: Filter) -> None:
        if isinstance(one, EqualTo) and one.attribute == ("spout",) and isinstance(one.value, str):
            known = self._address.acker(self._options.namespace).known_spouts()
            self._nothing |= one.value not in known or self._options.spout not in (None, one.value)
            self._options = replace(self._options, spout=one.value)
        elif isinstance(one, EqualTo) and one.attribute == ("shard",) and self._options.view == "pending":
            self._shard = one.value
        elif isinstance(one, (GreaterThan, GreaterThanOrEqual)) and one.attribute == ("age_ms",):
            self._options = replace(self._options, min_age_ms=max(self._options.min_age_ms, int(one.value)))


def _text(message_id: MessageId | None) -> str | None:
    """An id as commands take it: bytes in base64."""
    return id_to_text(message_id) if isinstance(message_id, bytes) else None if message_id is None else str(message_id)


def _pending(acker: Acker, options: ViewOptions, partition: ViewPartition) -> Iterator[tuple[Any, ...]]:
    for one in acker.pending(spout=options.spout, shard=partition.shard, older_than_ms=options.min_age_ms):
        root = root_text(one.root)
        yield root, one.spout, _text(one.message_id), one.attempt, one.age_ms, one.shard, one.bucket


def _failed(acker: Acker, options: ViewOptions, partition: ViewPartition) -> Iterator[tuple[Any, ...]]:
    read = _waiting if partition.shard is None else _unread
    until_ms = acker.shards.time_ms(partition.shard or 0) - options.min_age_ms
    return (row for row in read(acker, options, partition) if row[8] <= until_ms)


def _unread(acker: Acker, options: ViewOptions, partition: ViewPartition) -> Iterator[tuple[Any, ...]]:
    """Failures in their streams: their driver has not dealt with them."""
    assert partition.shard is not None
    for spout, number in acker.known_spouts(options.spout).items():
        for entry, fields in acker.shards.entries("failures", number, partition.shard):
            with suppress(Unreadable):  # its reader sets it aside
                failure = parse_entry("failures", partition.shard, entry, fields)
                assert isinstance(failure, Failure)
                for one in FailedRoot.of(spout, failure):
                    why = one.reason, one.component, one.error, one.fatal, one.at_ms
                    message_id, root = _text(one.message_id), root_text(one.root)
                    yield "unread", spout, message_id, one.attempt, *why, None, root, one.shard


def _waiting(acker: Acker, options: ViewOptions, partition: ViewPartition) -> Iterator[tuple[Any, ...]]:
    """Messages in the retry book: they wait for their next attempt."""
    assert partition.spout is not None
    seen = set[bytes]()
    for page in acker.shards.retries(acker.known_spouts()[partition.spout]).pages():
        for name, value in page:
            with suppress(Unreadable):
                found = Request.read(name, value)
                if name not in seen and found.retry.history:  # without: its driver ended, and nothing failed
                    seen.add(name)
                    last = found.retry.history[-1]
                    why = last.reason, last.component, last.error, False, last.at_ms
                    message_id = _text(found.message_id)
                    yield "waiting", partition.spout, message_id, last.attempt, *why, found.retry.due_ms, None, 0


def _dead(acker: Acker, options: ViewOptions, partition: ViewPartition) -> Iterator[tuple[Any, ...]]:
    until_ms = acker.shards.time_ms(0) - options.min_age_ms
    for one in DeadLetters(acker, spout=partition.spout):
        last = one.history[-1]
        if last.at_ms <= until_ms:
            why = last.reason, last.component, last.error, one.fatal, last.at_ms
            history = json.dumps([vars(attempt) for attempt in one.history])
            payload = None if one.payload is None else json.dumps(one.payload)
            kept = history, payload, one.stream, one.is_readable
            yield one.spout, _text(one.message_id), last.attempt, *why, *kept


def _stats(acker: Acker, options: ViewOptions, partition: ViewPartition) -> Iterator[tuple[Any, ...]]:
    for one in read_overview(acker).spouts:
        if options.spout in (None, one.name):
            counted = one.stats
            final = counted.initialised, counted.completed, counted.failed, counted.timeout
            kept = one.retries, one.dead, one.unread_completions, one.unread_failures
            latency = one.latency.at_most_ms(0.5), one.latency.at_most_ms(0.99)
            state = one.driver, one.paused_ms, one.lag, one.micro_batches
            numbers = *final, counted.replayed, counted.buried, *kept, one.oldest_ms, *latency
            yield one.name, counted.pending, *numbers, *state


_READ: dict[str, Callable[[Acker, ViewOptions, ViewPartition], Iterator[tuple[Any, ...]]]] = {
    "pending": _pending,
    "failed": _failed,
    "dead": _dead,
    "stats": _stats,
}
