"""Reads the completion and failure streams of a spout, each entry by one consumer, until it is released."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from redis_acker.errors import MemoryFull, ScriptFailed
from redis_acker.outcomes import Kind, Outcome, parse_entry
from redis_acker.transport import Command

if TYPE_CHECKING:
    from redis_acker.acker import Acker

GROUP = "drivers"
"""The one consumer group of every stream: its members share the entries, and an entry that is released is deleted."""

READ_COUNT = 100
"""Entries taken from a shard at once."""

CLAIM_AFTER_MS = 60_000
"""An entry that a consumer has held this long without releasing it is given to another one."""

_POLL_S = 0.01
_CLAIM_EVERY_S = 1.0

AnyOutcome = TypeVar("AnyOutcome", bound=Outcome)


class OutcomeReader(Generic[AnyOutcome]):
    """One consumer of the completions or failures of one spout, over all shards.

    read() hands out entries. They stay in the stream until release(); what a consumer took and never released, be it
    this one before a restart under the same name or a dead one, is handed out again.
    """

    def __init__(self, acker: Acker, kind: Kind, spout: str, *, consumer: str, claim_after_ms: int) -> None:
        self._transport = acker.transport
        self._troubles = self._transport.troubles
        self._consumer = consumer
        self._claim_after_ms = claim_after_ms
        self._next_claim = 0.0
        number = acker.spout_number(spout)
        self._keys = [getattr(keys, kind)(number) for keys in acker.shard_keys]
        self._backlog_from: list[str | None] = ["0"] * len(self._keys)
        self._claim_from: list[bytes] = [b"0"] * len(self._keys)
        self._handed_out: set[tuple[int, str]] = set()

    def __enter__(self) -> OutcomeReader[AnyOutcome]:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Leaves the groups. Entries that are held and not released stay for another consumer to claim."""
        for shard, key in enumerate(self._keys):
            held = self._run([Command(shard, ("XPENDING", key, GROUP, "-", "+", 1, self._consumer))])[0]
            if not held:
                with contextlib.suppress(MemoryFull):  # 6.2 wants memory for it; an idle member does no harm
                    self._run([Command(shard, ("XGROUP", "DELCONSUMER", key, GROUP, self._consumer))])

    def read(self, *, wait_ms: int = 0) -> list[AnyOutcome]:
        """Entries not yet handed out, or handed out and abandoned. Waits up to wait_ms for the first."""
        deadline = time.monotonic() + wait_ms / 1000
        while True:
            outcomes = self._own_or_new() or self._claim()
            if outcomes or time.monotonic() >= deadline:
                return outcomes
            time.sleep(min(_POLL_S, max(0.0, deadline - time.monotonic())))

    def release(self, outcomes: Sequence[AnyOutcome]) -> None:
        """Deletes entries that have been dealt with."""
        by_shard: dict[int, list[str]] = {}
        for outcome in outcomes:
            by_shard.setdefault(outcome.shard, []).append(outcome.entry)
        self._transport.run(
            [
                Command.call("release", shard, [self._keys[shard]], [GROUP, *entries[at : at + READ_COUNT]])
                for shard, entries in by_shard.items()
                for at in range(0, len(entries), READ_COUNT)
            ]
        )
        self._handed_out.difference_update((outcome.shard, outcome.entry) for outcome in outcomes)

    def rewind(self) -> None:
        """Hands out again what this consumer holds, after an error left it unknown what was dealt with."""
        self._backlog_from = ["0"] * len(self._keys)

    def consume(self) -> Iterator[AnyOutcome]:
        """Everything that is there now, one by one, each released when the next is asked for."""
        while outcomes := self.read():
            for outcome in outcomes:
                yield outcome
                self.release([outcome])

    def _own_or_new(self) -> list[AnyOutcome]:
        """Entries this consumer has got and not handed out come first, then new ones."""
        while True:
            starts = list(self._backlog_from)
            outcomes = self._read_from(starts)
            lost_replies = self._troubles != self._transport.troubles
            if lost_replies:  # and with them, perhaps, entries that are this consumer's now
                self._troubles = self._transport.troubles
                self._backlog_from = ["0"] * len(self._keys)
            if outcomes or (self._backlog_from == starts and not lost_replies):
                return outcomes

    def _read_from(self, starts: list[str | None]) -> list[AnyOutcome]:
        """Reads on in the backlog of each shard, or new entries where the backlog has been read (None)."""
        head = ("XREADGROUP", "GROUP", GROUP, self._consumer, "COUNT", READ_COUNT, "STREAMS")
        keys_and_starts = zip(self._keys, starts, strict=True)
        replies = self._run(
            [Command(shard, (*head, key, start or ">")) for shard, (key, start) in enumerate(keys_and_starts)]
        )
        outcomes: list[AnyOutcome] = []
        for shard, reply in enumerate(replies):
            entries = _entries(reply)
            if starts[shard] is not None:
                self._backlog_from[shard] = entries[-1][0].decode() if entries else None
                entries = [one for one in entries if (shard, one[0].decode()) not in self._handed_out]
            outcomes += self._hand_out(shard, entries)
        return outcomes

    def _claim(self) -> list[AnyOutcome]:
        """Entries another consumer has held for too long."""
        if time.monotonic() < self._next_claim:
            return []
        head = (GROUP, self._consumer, self._claim_after_ms)
        replies = self._run(
            [
                Command(shard, ("XAUTOCLAIM", key, *head, self._claim_from[shard], "COUNT", READ_COUNT))
                for shard, key in enumerate(self._keys)
            ]
        )
        outcomes: list[AnyOutcome] = []
        for shard, reply in enumerate(replies):
            self._claim_from[shard] = reply[0]
            outcomes += self._hand_out(shard, reply[1])
        if not outcomes and all(start == b"0-0" for start in self._claim_from):
            self._next_claim = time.monotonic() + min(_CLAIM_EVERY_S, self._claim_after_ms / 1000)
        return outcomes

    def _hand_out(self, shard: int, entries: list[Any]) -> list[AnyOutcome]:
        # An entry that was deleted while a consumer held it comes without fields, or as nothing on 6.2.
        outcomes: list[Any] = [parse_entry(shard, entry[0], entry[1]) for entry in entries if entry and entry[1]]
        self._handed_out.update((shard, outcome.entry) for outcome in outcomes)
        return outcomes

    def _run(self, commands: list[Command]) -> list[Any]:
        try:
            return self._transport.run(commands)
        except ScriptFailed as error:
            if "NOGROUP" not in str(error):
                raise
        self._create_groups()
        self._troubles -= 1  # the error took the place of all replies: look for what they brought
        return self._transport.run(commands)

    def _create_groups(self) -> None:
        self._transport.run(Command.call("join", shard, [key], [GROUP]) for shard, key in enumerate(self._keys))


def _entries(reply: list[Any] | None) -> list[Any]:
    """The entries of the one stream that was read: [[key, entries]], or flat from a client that speaks RESP3."""
    if not reply:
        return []
    entries: list[Any] = reply[0][1] if isinstance(reply[0], list) else reply[1]
    return entries
