"""The one door to the shards: a method for each script, with its KEYS and ARGV, and handles for plain hashes.

shards_streams.py has what concerns streams, and shards_plain.py what else needs no script.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from redis_acker.store.batches import Batch
from redis_acker.store.hashes import StoredHash
from redis_acker.store.keys import ShardKeys
from redis_acker.store.server_clocks import ServerClocks
from redis_acker.store.shards_streams import GROUP, StreamShards
from redis_acker.store.transport import Argument, Command, Transport

if TYPE_CHECKING:
    from redis_acker.store.namespace import StoredSettings


class Shards(StreamShards):
    """The shards of one namespace. A spout goes by its number here."""

    def __init__(
        self, transport: Transport, namespace: str, settings: StoredSettings, *, clock: Callable[[], int] | None = None
    ) -> None:
        self.transport, self.settings, self._clock = transport, settings, clock
        self.keys = [ShardKeys(namespace, shard, settings.buckets) for shard in range(settings.shards)]
        self.clocks = ServerClocks(self.time_ms, settings.timeout_ms)

    def __len__(self) -> int:
        return len(self.keys)

    # -- blocks: lua/lib/shard.lua lists the KEYS and ARGV that come first ---------------------------------------

    def init(
        self,
        batches: Iterable[Batch],
        *,
        quiet: bool,
        echo: bool,
        until_ms: int | None,
        since_s: float | None = None,
    ) -> list[list[int]]:
        """For each batch: roots initialised, completed, failed, duplicates. until_ms None: as self.clocks has it for a
        batch that is first sent now, or was at since_s."""

        def last_ms(shard: int) -> Argument:
            if until_ms is not None:
                return until_ms
            return self.clocks.until_ms(shard, since_s) if self._clock is None else ""

        return self._run_batches(
            "init", batches, lambda batch: [int(quiet), int(echo), last_ms(batch.shard), *batch.dense]
        )

    def ack(self, batches: Iterable[Batch], token: bytes, *, restart: bool) -> list[list[int]]:
        """For each batch: ack vals applied, roots completed, ack vals late, duplicates."""
        return self._run_batches(
            "ack", batches, lambda batch: [token, int(restart), b"".join(batch.sparse), *batch.dense]
        )

    def ack_edges(self, batches: Iterable[Batch], *, restart: bool) -> list[list[int]]:
        """For each batch: deliveries applied, roots completed, deliveries late, duplicates."""
        return self._run_batches("ack_edges", batches, lambda batch: [int(restart), *batch.dense])

    def edge_states(self, batches: Iterable[Batch]) -> list[list[bytes]]:
        """For each block of each batch: a byte for each delivery."""
        return self._run_batches("edge_states", batches, lambda batch: list(batch.dense))

    def fail(self, parts: Iterable[tuple[Iterable[Batch], bytes, bytes, bool, str]]) -> list[list[int]]:
        """Fails batches of roots, each with a component, an error, whether it is fatal, and a reason. For each batch:
        roots failed, kept for their init, late."""
        return self.transport.run(
            self._on_blocks(
                "fail", one.shard, sorted(one.spouts), [component, error, int(fatal), reason, b"".join(one.sparse)]
            )
            for batches, component, error, fatal, reason in parts
            for one in batches
        )

    def extend(self, batches: Iterable[Batch]) -> list[int]:
        """For each batch: roots that were pending."""
        return self._run_batches("extend", batches, lambda batch: [b"".join(batch.sparse), b"".join(batch.dense)])

    def inspect(self, shard: int, block: bytes, index: int) -> list[Any]:
        """What the shard has of one root; lua/inspect.lua lists the parts."""
        reply: list[Any] = self.transport.run_one(self._on_blocks("inspect", shard, (), [block, index]))
        return reply

    def page(self, shard: int, born: int, cursor: bytes, blocks: int) -> tuple[bytes, list[Any], int]:
        """One page of the blocks born in a tick: the next cursor; block, head and ids of each; the server's time."""
        cursor, flat, now_ms = self.transport.run_one(self._on_blocks("page", shard, (), [born, cursor, blocks]))
        return cursor, flat, now_ms

    def rotate(self, shard: int, tick_ms: int) -> tuple[str, int]:
        """'turned', 'early' or 'waiting', and the ms until the next step is due."""
        state, due_in_ms = self.transport.run_one(self._on_blocks("rotate", shard, (), [tick_ms]))
        return state.decode(), due_in_ms

    def note_histories(self) -> None:
        """Notes in each shard whether its server was restarted or replaced."""
        self.transport.run(self._on_blocks("history", shard, (), []) for shard in range(len(self.keys)))

    def expired(self, shard: int, cursor: bytes, blocks: int) -> tuple[bytes, bytes, bytes, int]:
        """One page of the expired blocks: the next cursor; their names; what each costs; how many were set aside."""
        reply = self.transport.run_one(self._on_blocks("expired", shard, (), [cursor, blocks]))
        return reply[0], reply[1], reply[2], reply[3]

    def drain(self, shard: int, parts: Iterable[tuple[Sequence[int], bytes]]) -> list[list[int]]:
        """For each part, given as its spouts and its blocks: roots expired, orphans, roots filed again."""
        return self.transport.run(self._on_blocks("drain", shard, spouts, [blocks]) for spouts, blocks in parts)

    # -- the namespace and its spouts ----------------------------------------------------------------------------

    def open(
        self, first: int, end: int, fields: Iterable[tuple[str, int]], *, create: bool
    ) -> list[list[bytes | None]]:
        """The stored settings of each shard. Where there are none, create=True stores those given first."""
        args: list[Argument] = [int(create), self._now(), *(part for pair in fields for part in pair)]
        return self.transport.run(
            Command.call("open", shard, [self.keys[shard].meta], args) for shard in range(first, end)
        )

    def spout(self, name: str, number: int, most: int) -> int:
        """The number of a spout: the one it has, the one proposed, or the next one free; 0 if all are taken."""
        found: int = self.transport.run_one(Command.call("spout", 0, [self.keys[0].spouts], [name, number, most]))
        return found

    def allocate(self, name: str, spout: int, blocks: int) -> int:
        """Reserves sequence numbers for blocks of a spout, and returns the first."""
        keys = [self.keys[0].sequences, self.keys[0].spouts]
        return int(self.transport.run_one(Command.call("allocate", 0, keys, [name, spout, blocks, self._now()])))

    # -- the progress of Spark runs ------------------------------------------------------------------------------

    def begin_portion(
        self,
        spout: int,
        run: str,
        partition: str,
        offset: int,
        before: str,
        rows: int,
        sum: str,
        blocks: int,
        *,
        part: str = "",
    ) -> tuple[Any, int, str, int, int, int, int, int]:
        """State, rows, checksum, first sequence and stage of a portion, the server's time, and rows and first sequence
        of the roots that it had before."""
        keys = [self.keys[0].progress(spout, part), self.keys[0].sequences]
        timeout_ms = self.settings.timeout_ms
        args: list[Argument] = [run, partition, offset, before, rows, sum, blocks, spout, timeout_ms, self._now()]
        state, rows, sum_text, first, stage, now_ms, left_rows, left_first = self.transport.run_one(
            Command.call("begin_portion", 0, keys, args)
        )
        return state.decode(), rows, sum_text.decode(), int(first), stage, now_ms, left_rows, int(left_first)

    def keep_portion(
        self,
        spout: int,
        run: str,
        partition: str,
        offset: int,
        first: int,
        stage: int,
        failed: int,
        *,
        done_keys: bytes = b"",
        part: str = "",
    ) -> str:
        """'kept', 'done' or 'gone'."""
        keys = [self.keys[0].progress(spout, part), self.keys[0].done_keys(spout, part)]
        timeout_ms = self.settings.timeout_ms
        args: list[Argument] = [run, partition, offset, first, stage, failed, timeout_ms, self._now(), done_keys]
        return str(self.transport.run_one(Command.call("keep_portion", 0, keys, args)).decode())

    def leave_portion(self, spout: int, run: str, partition: str, *, part: str = "") -> tuple[int, int] | None:
        """Rows and first sequence of the portion that was in work."""
        reply = self.transport.run_one(
            Command.call("leave_portion", 0, [self.keys[0].progress(spout, part)], [run, partition])
        )
        return (reply[0], int(reply[1])) if reply else None

    # -- what cannot be read -------------------------------------------------------------------------------------

    def set_aside_entry(self, shard: int, stream: str, entry: bytes, name: bytes, parts: bytes) -> bool:
        """Moves an entry of a stream into the quarantine. False if it is gone."""
        keys = [stream, self.keys[shard].quarantine, self.keys[shard].counters]
        args: list[Argument] = [GROUP, entry, name, parts, self._now()]
        return bool(self.transport.run_one(Command.call("set_aside_entry", shard, keys, args)))

    def set_aside_field(self, shard: int, key: str, field: bytes, value: bytes, name: bytes, parts: bytes) -> bool:
        """Moves a field of a hash into the quarantine. False if it is gone, or has another value by now."""
        keys = [key, self.keys[shard].quarantine, self.keys[shard].counters]
        args: list[Argument] = [field, value, name, parts, self._now()]
        return bool(self.transport.run_one(Command.call("set_aside_field", shard, keys, args)))

    def quarantine(self, shard: int) -> StoredHash:
        return StoredHash(self.transport, shard, self.keys[shard].quarantine)

    # -- the right to drive a spout ------------------------------------------------------------------------------

    def lease(self, spout: int, owner: str, for_ms: int, *, dead: str = "", began: str = "") -> tuple[str, int]:
        """Takes or renews the lease if it is free, this owner's or that of a dead one, and notes with what it began.
        Returns who holds it now, and for how many ms."""
        keys = [self.keys[0].lease(spout), self.keys[0].began(spout)]
        holder, left_ms = self.transport.run_one(Command.call("lease", 0, keys, [owner, for_ms, dead, began]))
        return holder.decode(errors="replace"), left_ms

    def unlease(self, spout: int, owner: str, began: str) -> None:
        """Gives the lease up, if this owner holds it, and forgets that a driver began so if it was the last to."""
        keys = [self.keys[0].lease(spout), self.keys[0].began(spout)]
        self.transport.run_one(Command.call("unlease", 0, keys, [owner, began]))

    # -- retries -------------------------------------------------------------------------------------------------

    def accept(self, spout: int, name: str, request: bytes, retry: str) -> None:
        """Moves a request into the retry book. With an empty retry, only removes the request."""
        keys = [self.keys[0].retries(spout), self.keys[0].requests(spout)]
        self.transport.run_one(Command.call("accept", 0, keys, [name, request, retry]))

    def request(self, spout: int, requests: Iterable[Sequence[Argument]]) -> list[bytes]:
        """For each request (message id, root, time, request as it was read, retry): b'noted', b'again', b'changed'."""
        keys = [self.keys[0].requests(spout), self.keys[0].replayed(spout)]
        return self.transport.run(Command.call("request", 0, keys, one) for one in requests)

    def bury(self, spout: int, parts: Iterable[Sequence[tuple[str, str]]]) -> None:
        """Stores dead letters, given by message id, a part in one call; counts those that are not stored already."""
        keys = [self.keys[0].dead(spout), self.keys[0].counters]
        self.transport.run(
            Command.call("bury", 0, keys, [spout, *(text for letter in part for text in letter)]) for part in parts
        )

    def revive(self, spout: int, name: str, letter: bytes, retry: str) -> bool:
        """Turns a dead letter into a request. False if the letter is gone or was changed."""
        keys = [self.keys[0].dead(spout), self.keys[0].requests(spout)]
        return bool(self.transport.run_one(Command.call("revive", 0, keys, [name, letter, retry])))

    # -- hashes: ShardKeys says what each key holds --------------------------------------------------------------

    def tracked_streams(self) -> StoredHash:
        return StoredHash(self.transport, 0, self.keys[0].tracked_streams)

    def spout_states(self) -> StoredHash:
        return StoredHash(self.transport, 0, self.keys[0].spout_states)

    def retries(self, spout: int) -> StoredHash:
        return StoredHash(self.transport, 0, self.keys[0].retries(spout))

    def requests(self, spout: int) -> StoredHash:
        return StoredHash(self.transport, 0, self.keys[0].requests(spout))

    def dead(self, spout: int) -> StoredHash:
        return StoredHash(self.transport, 0, self.keys[0].dead(spout))

    def withdrawn(self, spout: int, shard: int) -> StoredHash:
        return StoredHash(self.transport, shard, self.keys[shard].withdrawn(spout))

    def heads(self, shard: int, bucket: int) -> StoredHash:
        return StoredHash(self.transport, shard, self.keys[shard].heads(bucket))

    def failed_rows(self, run: str) -> StoredHash:
        return StoredHash(self.transport, 0, self.keys[0].failed_rows(run))

    def progress(self, spout: int, part: str = "") -> StoredHash:
        return StoredHash(self.transport, 0, self.keys[0].progress(spout, part))

    def done_keys(self, spout: int, part: str = "") -> StoredHash:
        return StoredHash(self.transport, 0, self.keys[0].done_keys(spout, part))

    def meta(self, shard: int) -> StoredHash:
        return StoredHash(self.transport, shard, self.keys[shard].meta)

    def counters(self, shard: int) -> StoredHash:
        return StoredHash(self.transport, shard, self.keys[shard].counters)

    # -- how scripts are called ----------------------------------------------------------------------------------

    def _run_batches(self, name: str, batches: Iterable[Batch], args: Callable[[Batch], list[Argument]]) -> list[Any]:
        return self.transport.run(
            self._on_blocks(name, batch.shard, sorted(batch.spouts), args(batch)) for batch in batches
        )

    def _on_blocks(self, name: str, shard: int, spouts: Sequence[int], args: Sequence[Argument]) -> Command:
        packed = b"".join(spout.to_bytes(2, "big") for spout in spouts)
        keys = self.keys[shard].with_streams(spouts)
        return Command.call(name, shard, keys, [self.settings.buckets, self._now(), packed, *args])

    def _now(self) -> Argument:
        return "" if self._clock is None else self._clock()
