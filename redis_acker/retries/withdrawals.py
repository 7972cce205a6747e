"""Takes failures out of the store for a replay by hand: what `redis-acker drain` does.

A withdrawn failure moves from its stream into a hash beside it, with its owner, so that no other reader sees it. It
leaves the store when the owner says that it is durable elsewhere. A withdrawal may be stopped anywhere and loses
nothing: its owner gets the same failures again, or they go back into the stream once that process has ended.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import socket
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from threading import Event

from redis_acker.errors import SpoutTaken, Unreadable
from redis_acker.retries.failed_roots import FailedRoot
from redis_acker.server.leftovers import start_of
from redis_acker.store.acker import Acker
from redis_acker.store.lease import Lease
from redis_acker.store.quarantine import Quarantine
from redis_acker.store.shards import Shards
from redis_acker.store.streams import Failure, parse_entry

_AT_ONCE = 20
"""Failures withdrawn by one call. Each holds up to thousands of roots."""

_WHO = "a drain on "


@dataclass(frozen=True)
class Owner:
    """Who withdraws failures: a process, or a file that a process writes and the next one continues."""

    host: str
    pid: int
    started: str
    """When the process started: its pid may belong to another by now."""
    file: str = ""
    """Identifies the file that the failures go to; empty if there is none."""
    where: str = ""
    """Where the failures go, for people."""

    @classmethod
    def here(cls, where: str, file: os.stat_result | None = None) -> Owner:
        """This process."""
        identity = f"{file.st_dev}:{file.st_ino}" if file else ""
        return cls(_host(), os.getpid(), start_of(os.getpid()), identity, where)

    @property
    def name(self) -> tuple[str, ...]:
        """An owner continues what another of the same name has withdrawn."""
        return (self.host_name, self.file) if self.file else (self.host, str(self.pid), self.started)

    @property
    def host_name(self) -> str:
        return self.host.partition("/")[0]

    def is_gone(self) -> bool:
        """Whether its process has certainly ended, without a file that could be continued."""
        return not self.file and self.host == _host() and start_of(self.pid) != self.started

    def __str__(self) -> str:
        return f"{self.where} on {self.host_name}"


_OWNER: dict[str, type] = {"host": str, "pid": int, "started": str, "file": str, "where": str}


def _host() -> str:
    # A process id means something only within its pid namespace; containers may share a host name.
    name = socket.gethostname()
    with contextlib.suppress(OSError):
        name += f"/{os.stat('/proc/self/ns/pid').st_ino}"
    return name


@dataclass(frozen=True)
class Choice:
    """Which failures to withdraw."""

    spout: str | None = None
    reason: str | None = None
    older_than_ms: int = 0
    """Only what failed at least this long ago."""
    limit: int | None = None
    """Enough after this many roots. Roots that failed together stay together, so there may be more."""
    with_ids: bool = False
    """Only failures whose roots have message ids: others cannot be replayed."""


@dataclass(frozen=True)
class WithdrawnFailure:
    """A withdrawn failure, and its owner."""

    spout: str
    failure: Failure
    owner: Owner
    fields: dict[bytes, bytes]
    """Of its stream entry."""
    note: bytes
    """As it is stored."""

    @classmethod
    def of(cls, spout: str, failure: Failure, fields: dict[bytes, bytes], owner: Owner) -> WithdrawnFailure:
        packed = {name.decode(): base64.b64encode(value).decode() for name, value in fields.items()}
        note = json.dumps({"owner": asdict(owner), "fields": packed}).encode()
        return cls(spout, failure, owner, fields, note)

    @classmethod
    def read(cls, spout: str, shard: int, entry: bytes, note: bytes) -> WithdrawnFailure:
        try:
            data = json.loads(note)
            fields = {name.encode(): base64.b64decode(value) for name, value in data["fields"].items()}
            owner = Owner(**{name: kind(data["owner"][name]) for name, kind in _OWNER.items()})
            entry.decode()
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
            raise Unreadable("it is not the note of a withdrawal") from None
        failure = parse_entry("failures", shard, entry, [part for pair in fields.items() for part in pair])
        assert isinstance(failure, Failure)
        return cls(spout, failure, owner, fields, note)


class Withdrawal:
    """One withdrawal. Any number may run at once: each failure goes to one of them."""

    def __init__(
        self, acker: Acker, owner: Owner, choice: Choice, *, take_over: bool = False, force: bool = False
    ) -> None:
        """take_over: also what other owners hold that may still be at work, or have it in a file. force: also the
        failures of a spout that is being driven, unless its driver has read them."""
        self._acker, self._owner, self._choice = acker, owner, choice
        self._take_over, self._force = take_over, force
        self._left = choice.limit
        self.driven: dict[str, str] = {}
        """Spouts that were left out, and who drives them."""
        self.with_others: dict[str, int] = {}
        """Roots that other owners hold, by owner."""
        self.without_id = 0
        """Roots that were left out because they have no message id."""

    def peek(self) -> Iterator[FailedRoot]:
        """The chosen roots, without withdrawing them."""
        for name, number in self._acker.known_spouts(self._choice.spout).items():
            for shard in range(len(self._acker.shards)):
                for failure, _ in self._chosen(number, shard):
                    if self._left == 0:
                        return
                    yield from FailedRoot.of(name, failure)
                    self._count(len(failure))

    def failures(self) -> Generator[WithdrawnFailure]:
        """Withdraws the chosen failures. Forget each as soon as it is durable elsewhere."""
        for name, number in self._acker.known_spouts(self._choice.spout).items():
            if self._left == 0:
                return
            if not _has_failures(self._acker.shards, number):
                continue
            with self._in_place_of_the_driver(name) as lease:
                if name not in self.driven:
                    for shard in range(len(self._acker.shards)):
                        yield from self._left_over(name, number, shard)
                        if self._left != 0:
                            yield from self._withdraw(name, number, shard, lease)

    def roots_of(self, withdrawn: WithdrawnFailure) -> list[FailedRoot]:
        """The roots of a failure whose replay was not requested yet."""
        replayed = _replayed(self._acker, withdrawn)
        return [root for root in FailedRoot.of(withdrawn.spout, withdrawn.failure) if root.root not in replayed]

    def forget(self, withdrawn: WithdrawnFailure) -> None:
        """Deletes a failure that is durable elsewhere."""
        number, failure = self._acker.spout_number(withdrawn.spout), withdrawn.failure
        self._acker.shards.withdrawn(number, failure.shard).remove([failure.entry])

    def _left_over(self, name: str, number: int, shard: int) -> Iterator[WithdrawnFailure]:
        """What this owner has withdrawn before. What owners hold that have ended goes back into its stream."""
        for withdrawn in _read(self._acker, name, number, shard):
            if withdrawn.owner.name == self._owner.name:
                yield withdrawn
            elif self._take_over or withdrawn.owner.is_gone():
                fields = {} if _is_replayed(self._acker, withdrawn) else withdrawn.fields
                self._acker.shards.put_back(number, shard, withdrawn.failure.entry, withdrawn.note, fields)
            else:
                owner = str(withdrawn.owner)
                self.with_others[owner] = self.with_others.get(owner, 0) + len(withdrawn.failure)

    def _withdraw(self, name: str, number: int, shard: int, lease: Lease | None) -> Iterator[WithdrawnFailure]:
        wanted: list[WithdrawnFailure] = []
        roots = 0
        for failure, fields in self._chosen(number, shard):
            wanted.append(WithdrawnFailure.of(name, failure, fields, self._owner))
            roots += len(failure)
            is_enough = self._left is not None and roots >= self._left
            if is_enough or len(wanted) == _AT_ONCE:
                yield from self._move(number, shard, wanted, lease)
                wanted, roots = [], 0
            if self._left == 0:
                return
        yield from self._move(number, shard, wanted, lease)

    def _move(
        self, number: int, shard: int, wanted: Sequence[WithdrawnFailure], lease: Lease | None
    ) -> Iterator[WithdrawnFailure]:
        """Makes failures this owner's, and yields those that nobody else got first."""
        if not wanted:
            return
        entries = [(one.failure.entry, one.note) for one in wanted]
        replies = self._acker.shards.withdraw(number, shard, entries, held=_is_held(lease))
        got = [one for one, moved in zip(wanted, replies, strict=True) if moved]
        self._count(sum(len(one.failure) for one in got))
        yield from got

    def _chosen(self, number: int, shard: int) -> Iterator[tuple[Failure, dict[bytes, bytes]]]:
        shards = self._acker.shards
        latest_ms = shards.time_ms(shard) - self._choice.older_than_ms
        for entry, flat in shards.entries("failures", number, shard):
            try:
                failure = parse_entry("failures", shard, entry, flat)
            except Unreadable as error:
                Quarantine(shards).set_aside_entry(shard, shards.keys[shard].failures(number), entry, flat, error)
                continue
            assert isinstance(failure, Failure)
            if self._choice.reason not in (None, failure.reason):
                continue
            if self._choice.older_than_ms and failure.at_ms > latest_ms:
                continue
            if self._choice.with_ids and None in failure.message_ids:
                self.without_id += len(failure)
                continue
            yield failure, dict(zip(flat[::2], flat[1::2], strict=True))

    @contextmanager
    def _in_place_of_the_driver(self, name: str) -> Iterator[Lease | None]:
        """Takes the lease of the spout, so that no driver starts meanwhile. None if another has it."""
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

    def _count(self, roots: int) -> None:
        if self._left is not None:
            self._left = max(0, self._left - roots)


def forget_lent(acker: Acker, places: Iterable[tuple[str, int]]) -> None:
    """Deletes failures that were only lent, to no file, if the replay of all their roots was requested. places: the
    spouts and shards to look at."""
    for spout, shard in sorted(places):
        number = acker.spout_number(spout)
        lent = [one for one in _read(acker, spout, number, shard) if not one.owner.file]
        done = [one.failure.entry for one in lent if _is_replayed(acker, one)]
        acker.shards.withdrawn(number, shard).remove(done)


def _read(acker: Acker, spout: str, number: int, shard: int) -> Iterator[WithdrawnFailure]:
    """What was withdrawn and is still in the store."""
    seen, read = set[str](), partial(WithdrawnFailure.read, spout, shard)
    for withdrawn in Quarantine(acker.shards).readable(acker.shards.withdrawn(number, shard), read, _AT_ONCE):
        if withdrawn.failure.entry not in seen:
            seen.add(withdrawn.failure.entry)
            yield withdrawn


def _replayed(acker: Acker, withdrawn: WithdrawnFailure) -> set[int]:
    """Those roots of a failure whose replay was requested."""
    return acker.shards.replayed(acker.spout_number(withdrawn.spout), withdrawn.failure.roots.tolist())


def _is_replayed(acker: Acker, withdrawn: WithdrawnFailure) -> bool:
    return len(_replayed(acker, withdrawn)) == len(withdrawn.failure)


def _has_failures(shards: Shards, number: int) -> bool:
    """Whether any failure of the spout is in a stream, or withdrawn."""
    return any(shards.unread("failures", number)) or any(shards.withdrawn_sizes(number))


def _is_held(lease: Lease | None) -> bool:
    """Whether this withdrawal still stands in for the driver, and may take what the driver had read."""
    if lease is None:
        return False
    try:
        lease.renew()
    except SpoutTaken:
        return False
    return True
