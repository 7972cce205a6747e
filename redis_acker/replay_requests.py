"""Asks the drivers of spouts to try messages again: once for each root that failed, with the attempts counted on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from redis_acker.acker import Acker
from redis_acker.draining import read_taken, replayed_roots, root_bytes
from redis_acker.errors import BadInput, UnknownSpout
from redis_acker.failures import FailedRoot
from redis_acker.retries import Retry, encode_id
from redis_acker.transport import Argument, Command

REMEMBERED_MS = 30 * 24 * 3600 * 1000
"""How long it is known of a root that its replay was asked for. Older failures are refused."""

_AT_ONCE = 100


@dataclass(frozen=True)
class Requested:
    """What became of requests, in roots."""

    noted: int
    again: int
    """Asked for before, and left alone."""


class ReplayRequests:
    """Requests for replays. A driver that runs sees them within about a second, another when it starts."""

    def __init__(self, acker: Acker) -> None:
        self._acker = acker
        self._spouts = {name: number for number, name in acker.spout_names().items()}
        seconds, micros = acker.transport.run_one(Command(0, ("TIME",)))
        self._now_ms = int(seconds) * 1000 + int(micros) // 1000

    def check(self, root: FailedRoot) -> None:
        """Raises BadInput for a root that cannot be replayed."""
        if root.spout not in self._spouts:
            raise UnknownSpout(
                f"Namespace {self._acker.namespace!r} has no spout {root.spout!r}: it has {sorted(self._spouts)}."
            )
        if root.message_id is None:
            raise BadInput(f"Root {root.root:#018x} has no message id, by which its source could find the message.")
        if root.at_ms < self._now_ms - REMEMBERED_MS:
            days = REMEMBERED_MS // (24 * 3600 * 1000)
            raise BadInput(
                f"Root {root.root:#018x} failed more than {days} days ago, and whether it was replayed since is not "
                "known any more: send its message to the source again."
            )

    def request(self, roots: Sequence[FailedRoot]) -> Requested:
        """Notes durably that the messages are to be tried again. The same roots again change nothing."""
        for root in roots:
            self.check(root)
        noted = again = 0
        by_spout: dict[str, list[FailedRoot]] = {}
        for root in roots:
            by_spout.setdefault(root.spout, []).append(root)
        for spout, some in by_spout.items():
            self._prune(self._spouts[spout])
            while some:
                part, some = some[:_AT_ONCE], some[_AT_ONCE:]
                states = self._send(self._spouts[spout], part)
                noted += states.count(b"noted")
                again += states.count(b"again")
                # Another request for the same message came in between, perhaps one of these: look again.
                some = [one for one, state in zip(part, states, strict=True) if state == b"changed"] + some
        return Requested(noted, again)

    def confirm(self, roots: Iterable[FailedRoot]) -> None:
        """Lets the store forget failures that a drain has lent out and all of whose roots were asked for."""
        for spout, shard in sorted({(root.spout, root.shard) for root in roots}):
            number = self._spouts[spout]
            done = [
                taken.failure.entry
                for taken in read_taken(self._acker, spout, number, shard)
                if not taken.owner.file
                and len(replayed_roots(self._acker, number, taken.failure)) == len(taken.failure)
            ]
            key = self._acker.shard_keys[shard].taken(number)
            self._acker.transport.run(Command(shard, ("HDEL", key, entry)) for entry in done)

    def _send(self, number: int, roots: Sequence[FailedRoot]) -> list[bytes]:
        keys = self._acker.shard_keys[0]
        names = [encode_id(root.message_id) for root in roots if root.message_id is not None]
        read: list[Command] = [
            Command(0, ("HMGET", key, *names)) for key in (keys.retries(number), keys.requests(number))
        ]
        books, requests = self._acker.transport.run(read)
        return self._acker.transport.run(
            Command.call("request", 0, [keys.requests(number), keys.replayed(number)], self._args(*one))
            for one in zip(roots, names, books, requests, strict=True)
        )

    def _args(self, root: FailedRoot, name: bytes, book: bytes | None, request: bytes | None) -> list[Argument]:
        known = max((Retry.from_json(text) for text in (book, request) if text), key=_attempt, default=Retry())
        retry = ""
        if known.attempt < root.attempt:
            retry = Retry([*known.history, root.as_attempt()], 0, known.payload, known.stream).to_json()
        return [name, root_bytes(root.root), self._now_ms, request or b"", retry]

    def _prune(self, number: int) -> None:
        """Forgets what is too old to be asked for again."""
        key, oldest = self._acker.shard_keys[0].replayed(number), self._now_ms - REMEMBERED_MS
        while some := self._acker.transport.run_one(
            Command(0, ("ZRANGEBYSCORE", key, "-inf", oldest, "LIMIT", 0, 1000))
        ):
            self._acker.transport.run_one(Command(0, ("ZREM", key, *some)))


def _attempt(retry: Retry) -> int:
    return retry.attempt
