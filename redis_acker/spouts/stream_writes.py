"""Writes batches of entries into streams of the user's, each batch once, whatever dies meanwhile.

Tasks stage entries, each attempt under a name of its own. The driver then notes which attempts make up the batch, and
appends what they have staged, chunk by chunk. That note is the commit: whoever takes the batch up again, after a crash
or beside a driver that is thought dead, goes on with the same attempts, where the last call stopped.
"""

from __future__ import annotations

import json
import struct
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from redis_acker.errors import BadInput, StagedGone
from redis_acker.spouts.user_streams import UserStreams, note_key
from redis_acker.store.transport import Argument, Command

CHUNK_ENTRIES = 200
CHUNK_BYTES = 256_000
"""What one call appends: so many entries, or as many as have this many bytes, so that no call holds up the server."""

MOST_FIELDS = 3_000
"""Of one entry. A script cannot pass more to a command."""

STAGED_FOR_S = 24 * 3600
"""How long staged entries wait for the commit of their batch. After that, those of lost attempts are gone at the
latest."""

COMMITTED_FOR_S = 7 * 24 * 3600
"""How long they wait once the batch is noted, should its driver die."""

Fields = Sequence[tuple[bytes, bytes]]


@dataclass(frozen=True)
class StagedPart:
    """What one attempt of a task has staged for one stream."""

    shard: int
    key: str
    chunks: int


class Staging:
    """Stages the entries of one attempt of a task."""

    def __init__(self, streams: UserStreams, query: str, batch: int) -> None:
        self._streams, self._query, self._batch = streams, query, batch
        self._attempt = uuid.uuid4().hex
        self._chunks: dict[int, list[bytes]] = {}
        self._sizes: dict[int, int] = {}
        self._staged: dict[int, int] = {}

    def add(self, shard: int, fields: Fields) -> None:
        packed = pack_entry(fields)
        waiting = self._chunks.setdefault(shard, [])
        if len(waiting) >= CHUNK_ENTRIES or self._sizes.get(shard, 0) + len(packed) > CHUNK_BYTES:
            self._send(shard)
        waiting.append(packed)
        self._sizes[shard] = self._sizes.get(shard, 0) + len(packed)

    def finish(self) -> list[StagedPart]:
        for shard in list(self._chunks):
            self._send(shard)
        return [StagedPart(shard, self._key(shard), count) for shard, count in sorted(self._staged.items())]

    def _key(self, shard: int) -> str:
        return note_key(self._streams.names[shard], "staged", self._query, str(self._batch), self._attempt)

    def _send(self, shard: int) -> None:
        waiting, number = self._chunks[shard], self._staged.get(shard, 0)
        if not waiting:
            return
        key, attempts = self._key(shard), _attempts_key(self._streams.names[shard], self._query)
        commands: list[tuple[Argument, ...]] = [
            ("SADD", attempts, key),  # first: whatever is staged can be found
            ("HSET", key, number, b"".join(waiting)),
            ("EXPIRE", key, STAGED_FOR_S),
            ("EXPIRE", attempts, COMMITTED_FOR_S),
        ]
        self._streams.run(Command(shard, one) for one in (commands if number == 0 else commands[1:3]))
        waiting.clear()
        self._sizes[shard], self._staged[shard] = 0, number + 1


class StreamWrites:
    """The batches of one query. query: its name, the same after every restart."""

    def __init__(self, streams: UserStreams, query: str) -> None:
        self._streams, self._query = streams, query
        self._plans = note_key(streams.names[0], "plans", query)

    def commit(self, batch: int, parts: Iterable[StagedPart]) -> None:
        """Appends the parts of a batch; those of an earlier call, if there was one. Nothing, if it was appended."""
        plan = self._noted(batch, list(parts))
        for shard in self._shards():
            # A stream without a part of this batch learns that the batch is over too.
            chosen = [one for one in plan if one.shard == shard] or [StagedPart(shard, self._written(shard), 0)]
            for place, part in enumerate(chosen):
                self._append(batch, len(chosen), place, part)
        self._streams.run_on(0, "HDEL", self._plans, batch)
        self._clean(batch)

    def abort(self, batch: int, parts: Iterable[StagedPart]) -> None:
        """Forgets what was staged for a batch, unless it is noted: then it has to be appended."""
        if self._streams.run_on(0, "HEXISTS", self._plans, batch):
            return
        self._streams.run(Command(part.shard, ("UNLINK", part.key)) for part in parts)

    def forget(self) -> None:
        """Removes all notes: no batch follows."""
        self._streams.run(Command(shard, ("UNLINK", self._written(shard))) for shard in self._shards())

    def expire(self) -> None:
        """Removes all notes after a while, should nobody come to forget them."""
        keys = [(0, self._plans), *((shard, self._written(shard)) for shard in self._shards())]
        self._streams.run(Command(shard, ("EXPIRE", key, COMMITTED_FOR_S)) for shard, key in keys)

    def _shards(self) -> range:
        return range(len(self._streams.names))

    def _written(self, shard: int) -> str:
        return note_key(self._streams.names[shard], "written", self._query)

    def _noted(self, batch: int, parts: list[StagedPart]) -> list[StagedPart]:
        """The parts that make up a batch: those that were noted first."""
        self._streams.run(Command(part.shard, ("EXPIRE", part.key, COMMITTED_FOR_S)) for part in parts)
        text = json.dumps([[part.shard, part.key, part.chunks] for part in parts])
        self._streams.run_on(0, "HSETNX", self._plans, batch, text)
        noted = self._streams.run_on(0, "HGET", self._plans, batch)
        # Nothing: another driver has appended the batch since, and every stream knows it.
        return [StagedPart(*one) for one in json.loads(noted)] if noted else parts

    def _append(self, batch: int, parts: int, place: int, part: StagedPart) -> None:
        keys = [self._streams.names[part.shard], part.key, self._written(part.shard)]
        while True:
            call = Command.call("stream_append", part.shard, keys, [batch, parts, place, part.chunks])
            state, chunk = self._streams.run([call])[0]
            if state == b"done":
                return
            if state == b"gone":
                raise StagedGone(
                    f"Chunk {chunk} of {part.chunks} of the rows that were staged for batch {batch} of the stream "
                    f"{keys[0]!r} is gone: the commit was interrupted more than {COMMITTED_FOR_S // 86_400} days ago, "
                    "or somebody deleted it. What came before it is in the stream. Start with another checkpoint."
                )

    def _clean(self, batch: int) -> None:
        """Removes what was staged for this batch and those before, by whichever attempt."""
        for shard, name in enumerate(self._streams.names):
            attempts = _attempts_key(name, self._query)
            staged = [key for key in self._streams.run_on(shard, "SMEMBERS", attempts) if _batch_of(key) <= batch]
            if staged:
                self._streams.run(Command(shard, args) for args in (("UNLINK", *staged), ("SREM", attempts, *staged)))


def pack_entry(fields: Fields) -> bytes:
    """One entry, as lua/stream_append.lua reads it."""
    if not 1 <= len(fields) <= MOST_FIELDS:
        raise BadInput(
            f"An entry of a stream has 1 to {MOST_FIELDS:,} fields, not {len(fields):,}: a row needs a value that is "
            "not null."
        )
    parts = (part for pair in fields for part in pair)
    return struct.pack(">H", len(fields)) + b"".join(struct.pack(">I", len(part)) + part for part in parts)


def _attempts_key(stream: str, query: str) -> str:
    return note_key(stream, "attempts", query)


def _batch_of(key: bytes) -> int:
    return int(key.split(b":")[-2])
