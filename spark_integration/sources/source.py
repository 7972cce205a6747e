"""A Redis Stream as a source whose entries are deleted when they are finished."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from redis_acker.errors import BadInput
from redis_acker.spouts.user_streams import UserStreams
from redis_acker.store.message_ids import MessageId
from spark_integration.sources.address import ServerAddress
from spark_integration.sources.options import MAX_PER_TRIGGER, ROWS_PER_PARTITION, SourceOptions
from spark_integration.sources.register import register_as

_FORMAT = "redis_acker_frame"
"""Beside the one that programs register themselves, which may have another address."""


@dataclass(frozen=True)
class StreamStatus:
    """One stream, as its source stands."""

    stream: str
    waiting: int
    """Entries that no micro-batch has yet."""
    pending: int
    """Entries that are delivered and not finished."""
    finished: int
    """Entries that are finished, and deleted when Spark commits their batch."""
    is_full: bool
    """Whether the query waits because max_pending entries are pending, in all streams together."""


class RedisStreamSource:
    """One stream, or several under numbered names, read by a streaming query.

    An entry is deleted when two things are so: finish() was told of it, and Spark has committed its micro-batch. So a
    micro-batch that Spark brings again has the same rows, and what is not finished is still there after any crash.
    A stream has one such source at a time.
    """

    def __init__(
        self,
        url: str | Sequence[str] | None,
        stream: str,
        *,
        shards: int = 1,
        start: str = "oldest",
        max_per_trigger: int = MAX_PER_TRIGGER,
        max_pending: int | None = None,
        missing: str = "fail",
        rows_per_partition: int = ROWS_PER_PARTITION,
    ) -> None:
        """url: of the servers; None is REDIS_ACKER_URL. shards: 4 reads orders:0 to orders:3.

        start: "oldest" or "newest" entry, for a query without a checkpoint. max_per_trigger: entries of a micro-batch.
        max_pending: with so many entries delivered and not finished, the query waits. missing: "fail" ends the query
        when entries are gone that it has not read, "skip" logs and counts them.
        """
        made = SourceOptions(
            stream, shards, start, max_per_trigger, max_pending, "finished", missing, rows_per_partition
        )
        self._options = SourceOptions.read(made.as_options())
        self._address = ServerAddress.of(url)

    def frame(self, spark: SparkSession, schema: str | None = None) -> DataFrame:
        """The streaming DataFrame. schema: names fields of the entries, as string or binary, beside `id`, `stream`,
        `entry`, `fields` and `anchors`, of which it has all by default."""
        register_as(spark, _FORMAT, self._address)
        reader = spark.readStream.format(_FORMAT).options(**self._options.as_options())
        return (reader if schema is None else reader.schema(schema)).load()

    def finish(self, message_ids: Iterable[MessageId]) -> None:
        """Says which messages have had their final event, by the `id` of their rows: `orders:0/1700000000000-0`. It may
        be told of a message again."""
        ids: dict[int, list[str]] = {}
        names = {name: shard for shard, name in enumerate(self._options.names)}
        for one in message_ids:
            name, _, entry = str(one).rpartition("/")
            if name not in names:
                raise BadInput(
                    f"{one!r} is not a message of {list(names)}, whose ids look like {next(iter(names))}/17-0."
                )
            ids.setdefault(names[name], []).append(entry)
        for shard, entries in ids.items():
            self._streams.finish(shard, entries)

    def status(self) -> list[StreamStatus]:
        """How each stream stands now."""
        found, is_full = [], self._streams.noted(0).get("is_full") == "1"
        for shard, name in enumerate(self._options.names):
            info, noted = self._streams.info(shard), self._streams.noted(shard)
            waiting = info.added - int(noted.get("delivered", info.added - info.length))
            finished = self._streams.finished_count(shard)
            pending = max(0, info.length - waiting - finished)
            found.append(StreamStatus(name, max(0, waiting), pending, finished, is_full))
        return found

    def lag(self) -> int:
        """How many entries no micro-batch has yet: a tracked stream asks for it, for people to see."""
        return sum(one.waiting for one in self.status())

    @property
    def _streams(self) -> UserStreams:
        return self._address.streams(self._options.names)
