"""Messages from a Redis stream."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from redis_acker.components.component import TaskContext
from redis_acker.components.spout import Message, Spout
from redis_acker.errors import BadInput, ScriptFailed, WrongKeyType
from redis_acker.spouts.records import WHOLE, read_record
from redis_acker.store.connect import Servers, open_servers
from redis_acker.store.message_ids import MessageId
from redis_acker.store.transport import Argument, Command, Transport

CLAIM_AFTER_MS = 60_000
"""A task that shows no sign of life for this long is dead, and its entries go to another."""

_RETRY_FOR_S = 3.0  # shorter than a driver's lease
_PAGE = 1000

log = logging.getLogger(__name__)


class RedisStreamSpout(Spout):
    """Hands out the entries of a stream, as one consumer of a group for each task. The id is that of the entry.

    An entry is acknowledged (XACK) when it is complete or dead. After a restart, a task first hands out what it had not
    finished. The entries of a task that is not started again go to the others.
    """

    def __init__(
        self,
        url: str,
        stream: str,
        *,
        group: str,
        fields: Sequence[str] | None = None,
        binary: bool = False,
        anchors: str | None = None,
        claim_after_ms: int = CLAIM_AFTER_MS,
    ) -> None:
        """group: each topology that should see every entry needs its own. A new one starts with the oldest entry.

        fields: names of fields of the entry, one value each. Without: one value, the entry as a dict. Names and values
        are str; binary=True leaves the values bytes. anchors: the field with the anchors of a message that another
        program handed over; it is not among the values.
        """
        self.fields = WHOLE if fields is None else fields
        self._names, self._binary, self._anchors = fields, binary, anchors
        self._url, self._stream, self._group = url, stream, group
        self._claim_after_ms = claim_after_ms

    def open(self, context: TaskContext) -> None:
        self._consumer = f"{context.component}/{context.task}"
        self._servers: Servers = open_servers(self._url, lambda shard: self._stream)
        self._transport = Transport(self._servers, retry_for_s=_RETRY_FOR_S)
        self._troubles = 0
        self._own_from: str | None = "0"
        """Where to continue reading the entries this task holds; None when all are read."""
        self._again: dict[MessageId, None] = {}
        self._done: list[MessageId] = []
        # The others get time to come back too.
        self._next_claim = self._next_sign = time.monotonic() + self._claim_after_ms / 1000
        self._create_group()

    def next_batch(self, limit: int) -> list[Message]:
        batch = self._replay(limit)
        if self._troubles != self._transport.troubles:  # a reply was lost, with entries that are ours now
            self._troubles, self._own_from = self._transport.troubles, "0"
        while self._own_from is not None and len(batch) < limit:
            entries = self._read(self._own_from, limit - len(batch))
            self._own_from = entries[-1][0].decode() if entries else None
            batch += map(self._message, entries)
        if len(batch) < limit and time.monotonic() >= self._next_claim:
            batch += self._claim(limit - len(batch))
        if len(batch) < limit:
            batch += map(self._message, self._read(">", limit - len(batch)))
        return batch

    def ack(self, message_id: MessageId) -> None:
        self._done.append(message_id)

    def fail(self, message_id: MessageId) -> None:
        self._again[message_id] = None

    def commit(self) -> None:
        while self._done:
            self._run("XACK", self._stream, self._group, *map(str, self._done[:_PAGE]))
            del self._done[:_PAGE]

    def keep_alive(self) -> None:
        """Shows the others that this task is alive and working on its entries, however long they take."""
        if time.monotonic() < self._next_sign:
            return
        idle_ms, start = self._claim_after_ms // 3, "-"
        while held := self._run(
            "XPENDING", self._stream, self._group, "IDLE", idle_ms, start, "+", _PAGE, self._consumer
        ):
            ids = [one[0] for one in held]
            self._run("XCLAIM", self._stream, self._group, self._consumer, 0, *ids, "JUSTID")
            start = f"({ids[-1].decode()}"
        self._next_sign = time.monotonic() + idle_ms / 1000

    def lag(self) -> int | None:
        """Entries that no consumer of the group has read, as the server counts them; from Redis 7.0 on."""
        for flat in self._run("XINFO", "GROUPS", self._stream):
            group = dict(zip(flat[::2], flat[1::2], strict=True)) if isinstance(flat, list) else flat
            if group.get(b"name") == self._group.encode():
                return group.get(b"lag")
        return None

    def close(self) -> None:
        if hasattr(self, "_servers"):  # otherwise the URL was wrong
            self._servers.close()

    def _replay(self, limit: int) -> list[Message]:
        ids = list(self._again)[:limit]
        replies = self._transport.run(Command(0, ("XRANGE", self._stream, str(one), str(one))) for one in ids)
        for one in ids:
            del self._again[one]
        return [
            self._message(reply[0] if reply else (str(one).encode(), None))
            for one, reply in zip(ids, replies, strict=True)
        ]

    def _read(self, start: str, count: int) -> list[Any]:
        reply = self._run(
            "XREADGROUP", "GROUP", self._group, self._consumer, "COUNT", count, "STREAMS", self._stream, start
        )
        return reply[0][1] if reply else []

    def _claim(self, limit: int) -> list[Message]:
        """The entries of tasks that have shown no sign of life for too long."""
        head = (self._stream, self._group, self._consumer, self._claim_after_ms)
        reply = self._run("XAUTOCLAIM", *head, "0", "COUNT", limit)
        deleted = [(one, None) for one in reply[2]] if len(reply) > 2 else []
        entries = [*filter(None, reply[1]), *deleted]
        if entries:
            log.warning("%s takes over %d entries that no task is working on.", self._consumer, len(entries))
        else:
            self._next_claim = time.monotonic() + self._claim_after_ms / 1000
        return [self._message(one) for one in entries]

    def _message(self, entry: Any) -> Message:
        entry_id = entry[0].decode()
        message = read_record(entry_id, entry[1], self._parse, self._names, f"Entry {entry_id} of {self._stream!r}")
        if self._anchors is None or entry[1] is None:
            return message
        return replace(message, anchors=dict(_pairs(entry[1])).get(self._anchors, b""))

    def _parse(self, flat: list[bytes] | None) -> dict[str, Any]:
        if flat is None:
            raise BadInput("it was deleted before it was finished.")
        values = ((name, value) for name, value in _pairs(flat) if name != self._anchors)
        return {name: value if self._binary else value.decode() for name, value in values}

    def _create_group(self) -> None:
        try:
            self._run("XGROUP", "CREATE", self._stream, self._group, "0", "MKSTREAM")
        except ScriptFailed as error:
            if "BUSYGROUP" not in str(error):
                raise
        except WrongKeyType:
            raise WrongKeyType(
                f"The key {self._stream!r} does not hold a stream: name another, or remove it."
            ) from None

    def _run(self, *args: Argument) -> Any:
        try:
            return self._transport.run_one(Command(0, args))
        except ScriptFailed as error:
            if "NOGROUP" not in str(error):
                raise
        log.warning("The group %r of stream %r is gone and is created again.", self._group, self._stream)
        self._create_group()
        return self._transport.run_one(Command(0, args))


def _pairs(flat: list[bytes]) -> Iterator[tuple[str, bytes]]:
    """The fields of an entry."""
    return zip((name.decode() for name in flat[::2]), flat[1::2], strict=True)
