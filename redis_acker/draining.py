"""Takes failures out of the store for a replay by hand: each by one drain, none lost wherever a drain is stopped.

A failure that is taken moves from its stream into a hash beside it, with the name of its owner. It leaves the store
when the owner says that it is durable elsewhere. What an owner took and did not get so far with is given to that owner
again, or, if that has ended, goes back into the stream.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event
from typing import Any

from redis_acker.acker import Acker
from redis_acker.errors import UnknownSpout
from redis_acker.failures import FailedRoot, TakenFailure
from redis_acker.lease import Lease, SpoutTaken
from redis_acker.outcomes import Failure, parse_entry
from redis_acker.owners import Owner
from redis_acker.splitting import split_items
from redis_acker.streams import GROUP
from redis_acker.transport import Argument, Command

BATCH_ROOTS = 10_000
"""Roots that are taken at once, so that memory stays bounded."""

_PAGE = 20
_WHO = "a drain on "


@dataclass(frozen=True)
class Choice:
    """Which failures."""

    spout: str | None = None
    reason: str | None = None
    older_than_ms: int = 0
    """Failed at least so long ago."""
    limit: int | None = None
    """At most so many roots."""
    with_ids: bool = False
    """None of a root without message id, which cannot be replayed."""


class Drain:
    """One drain. Any number may run at once: a failure is taken by one of them."""

    def __init__(
        self,
        acker: Acker,
        owner: Owner,
        choice: Choice,
        *,
        take_over: bool = False,
        force: bool = False,
        batch_roots: int = BATCH_ROOTS,
    ) -> None:
        """take_over: also what drains have taken that may still be at work, or have it in a file. force: also failures
        of a spout that is driven, as far as its driver has not read them."""
        self._acker, self._owner, self._choice = acker, owner, choice
        self._take_over, self._force = take_over, force
        self._batch_roots = batch_roots
        self._left = choice.limit
        self.driven: dict[str, str] = {}
        """Spouts that were left out, and who drives them."""
        self.with_others: dict[str, int] = {}
        """Roots that other drains have taken, by drain."""
        self.without_id = 0
        """Roots that were left out because they have no message id."""

    # -- looking -------------------------------------------------------------------------------------------------

    def peek(self) -> Iterator[FailedRoot]:
        """What there is, without taking it."""
        for name, number in self._spouts().items():
            for shard in range(self._acker.settings.shards):
                for failure, _ in self._failures(number, shard):
                    for root in FailedRoot.of(name, failure):
                        if self._left == 0:
                            return
                        yield root
                        self._count(1)

    # -- taking --------------------------------------------------------------------------------------------------

    def batches(self) -> Generator[list[TakenFailure]]:
        """Takes what there is, some failures at a time. Each is to be forgotten as soon as it is durable elsewhere."""
        for name, number in self._spouts().items():
            if self._left == 0:
                return
            if not self._has_failures(number):
                continue
            with self._as_driver(name) as lease:
                if name not in self.driven:
                    yield from self._resume(name, number)
                    for shard in range(self._acker.settings.shards):
                        yield from self._take_shard(name, number, shard, lease)

    def forget(self, taken: Sequence[TakenFailure]) -> None:
        """Deletes what is durable elsewhere."""
        self._acker.transport.run(
            Command(one.failure.shard, ("HDEL", self._taken_key(one.spout, one.failure.shard), one.failure.entry))
            for one in taken
        )

    def _resume(self, name: str, number: int) -> Iterator[list[TakenFailure]]:
        """What this owner took before. What others took that have ended goes back into its stream."""
        for shard in range(self._acker.settings.shards):
            own: list[TakenFailure] = []
            for taken in read_taken(self._acker, name, number, shard):
                if taken.owner.name == self._owner.name:
                    own.append(taken)
                elif self._take_over or taken.owner.is_gone():
                    self._restore(number, taken)
                else:
                    self.with_others[str(taken.owner)] = self.with_others.get(str(taken.owner), 0) + len(taken.failure)
            if own:
                yield own

    def _restore(self, number: int, taken: TakenFailure) -> None:
        """Leaves out roots whose replay was asked for: they were handed out, and have arrived."""
        shard, fields = taken.failure.shard, dict(taken.fields)
        done = replayed_roots(self._acker, number, taken.failure)
        if done:
            fields[b"items"] = split_items(taken.failure, lambda root: root not in done)[0]
        flat: list[Argument] = [part for pair in fields.items() for part in pair] if fields[b"items"] else []
        keys = [self._acker.shard_keys[shard].failures(number), self._acker.shard_keys[shard].taken(number)]
        args = [taken.failure.entry, taken.note, *flat]
        self._acker.transport.run_one(Command.call("restore", shard, keys, args))

    def _take_shard(self, name: str, number: int, shard: int, lease: Lease | None) -> Iterator[list[TakenFailure]]:
        batch: list[tuple[Failure, dict[bytes, bytes], dict[bytes, bytes]]] = []
        size = 0
        for failure, fields in self._failures(number, shard):
            room = self._room(size)
            if batch and len(failure) > room:
                yield self._take(name, number, shard, batch, lease)
                batch, size = [], 0
                room = self._room(0)
            if room == 0:
                return
            part, rest = _split(failure, fields, room)
            batch.append((failure, part, rest))
            size += min(room, len(failure))
            if rest:
                yield self._take(name, number, shard, batch, lease)
                batch, size = [], 0
        if batch:
            yield self._take(name, number, shard, batch, lease)

    def _room(self, size: int) -> int:
        """Roots that may be added to a batch of that size."""
        return min(self._batch_roots, self._batch_roots if self._left is None else self._left) - size

    def _take(
        self,
        name: str,
        number: int,
        shard: int,
        batch: list[tuple[Failure, dict[bytes, bytes], dict[bytes, bytes]]],
        lease: Lease | None,
    ) -> list[TakenFailure]:
        """Makes failures this owner's, and gives those that nobody else has got first."""
        keys = [self._acker.shard_keys[shard].failures(number), self._acker.shard_keys[shard].taken(number)]
        wanted = [TakenFailure.of(name, shard, failure.entry, part, self._owner) for failure, part, _ in batch]
        held = int(_is_held(lease))
        self._acker.transport.run_one(Command.call("join", shard, keys[:1], [GROUP]))
        replies = self._acker.transport.run(
            Command.call(
                "take",
                shard,
                keys,
                [GROUP, held, one.failure.entry, one.note, *(part for pair in rest.items() for part in pair)],
            )
            for one, (_, _, rest) in zip(wanted, batch, strict=True)
        )
        got = [one for one, reply in zip(wanted, replies, strict=True) if reply]
        self._count(sum(len(one.failure) for one in got))
        return got

    # -- streams and spouts --------------------------------------------------------------------------------------

    def _failures(self, number: int, shard: int) -> Iterator[tuple[Failure, dict[bytes, bytes]]]:
        """The failures of a stream that are chosen, a page at a time."""
        transport, key = self._acker.transport, self._acker.shard_keys[shard].failures(number)
        seconds, micros = transport.run_one(Command(shard, ("TIME",)))
        latest_ms = int(seconds) * 1000 + int(micros) // 1000 - self._choice.older_than_ms
        start = "-"
        while page := transport.run_one(Command(shard, ("XRANGE", key, start, "+", "COUNT", _PAGE))):
            for entry, flat in page:
                failure = parse_entry(shard, entry, flat)
                if isinstance(failure, Failure) and self._is_chosen(failure, latest_ms):
                    yield failure, dict(zip(flat[::2], flat[1::2], strict=True))
            start = f"({page[-1][0].decode()}"

    def _is_chosen(self, failure: Failure, latest_ms: int) -> bool:
        if self._choice.reason not in (None, failure.reason):
            return False
        if self._choice.older_than_ms and failure.at_ms > latest_ms:
            return False
        if self._choice.with_ids and None in failure.message_ids:
            self.without_id += len(failure)
            return False
        return True

    def _spouts(self) -> dict[str, int]:
        names = {name: number for number, name in sorted(self._acker.spout_names().items())}
        chosen = self._choice.spout
        if chosen is not None and chosen not in names:
            raise UnknownSpout(f"Namespace {self._acker.namespace!r} has no spout {chosen!r}: it has {sorted(names)}.")
        return names if chosen is None else {chosen: names[chosen]}

    def _has_failures(self, number: int) -> bool:
        commands = [
            Command(shard, args)
            for shard, keys in enumerate(self._acker.shard_keys)
            for args in (("XLEN", keys.failures(number)), ("HLEN", keys.taken(number)))
        ]
        return any(self._acker.transport.run(commands))

    @contextmanager
    def _as_driver(self, name: str) -> Iterator[Lease | None]:
        """Takes the place of the spout's driver, so that none begins while this works. None if it is taken."""
        lease = Lease(self._acker, name, who=_WHO)
        try:
            lease.take(wait=False, stop=Event())
        except SpoutTaken as error:
            if not (self._force or error.holder.startswith(_WHO)):
                self.driven[name] = error.holder
            yield None
            return
        try:
            yield lease
        finally:
            lease.give_up()

    def _taken_key(self, spout: str, shard: int) -> str:
        return self._acker.shard_keys[shard].taken(self._acker.spout_number(spout))

    def _count(self, roots: int) -> None:
        if self._left is not None:
            self._left -= roots


def read_taken(acker: Acker, spout: str, number: int, shard: int) -> Iterator[TakenFailure]:
    """What drains have taken of a spout and not got out of the store, a page at a time."""
    key, cursor = acker.shard_keys[shard].taken(number), b"0"
    seen: set[bytes] = set()
    while True:
        cursor, flat = acker.transport.run_one(Command(shard, ("HSCAN", key, cursor, "COUNT", _PAGE)))
        for entry, note in zip(flat[::2], flat[1::2], strict=True):
            if entry not in seen:
                seen.add(entry)
                yield TakenFailure.read(spout, shard, entry.decode(), note)
        if cursor == b"0":
            return


def replayed_roots(acker: Acker, number: int, failure: Failure) -> set[int]:
    """Those roots of a failure whose replay was asked for."""
    roots = failure.roots.tolist()
    command: tuple[Any, ...] = ("ZMSCORE", acker.shard_keys[0].replayed(number), *(root_bytes(one) for one in roots))
    scores = acker.transport.run_one(Command(0, command))
    return {root for root, score in zip(roots, scores, strict=True) if score is not None}


def root_bytes(root: int) -> bytes:
    return root.to_bytes(8, "big")


def _split(failure: Failure, fields: dict[bytes, bytes], most: int) -> tuple[dict[bytes, bytes], dict[bytes, bytes]]:
    """The fields of an entry with its first roots, and of one with the others; none if there are no others."""
    if len(failure) <= most:
        return fields, {}
    chosen = set(failure.roots[:most].tolist())
    part, rest = split_items(failure, chosen.__contains__)
    return {**fields, b"items": part}, {**fields, b"items": rest}


def _is_held(lease: Lease | None) -> bool:
    """Whether this drain still stands in for the driver, and may take what that one had read."""
    if lease is None:
        return False
    try:
        lease.renew()
    except SpoutTaken:
        return False
    return True
