"""Asks drivers to try messages again: once for each root that failed, as the attempt after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from redis_acker.errors import BadInput, Unreadable
from redis_acker.retries.book import Retry
from redis_acker.retries.failed_roots import FailedRoot
from redis_acker.store.acker import Acker
from redis_acker.store.hashes import StoredHash
from redis_acker.store.message_ids import id_to_text
from redis_acker.store.quarantine import Quarantine
from redis_acker.store.transport import Argument

REMEMBERED_MS = 30 * 24 * 3600 * 1000
"""How long the store remembers that the replay of a root was requested. Older failures are refused."""

_AT_ONCE = 100


@dataclass(frozen=True)
class Requested:
    """What became of the requests, in roots."""

    noted: int
    again: int
    """Requested before, and left alone."""


class ReplayRequests:
    """Requests for replays. A driver that is running sees them within about a second, any other when it starts."""

    def __init__(self, acker: Acker) -> None:
        self._acker = acker
        self._shards = acker.shards
        self._spouts = acker.known_spouts()
        self._now_ms = acker.shards.time_ms(0)

    def check(self, root: FailedRoot) -> None:
        """Raises BadInput for a root that cannot be replayed."""
        if root.spout not in self._spouts:
            self._acker.known_spouts(root.spout)  # raises
        if not 0 <= root.shard < len(self._shards):
            last = len(self._shards) - 1
            raise BadInput(f"Root {root.root:#018x} is said to be in shard {root.shard}, but the last one is {last}.")
        if root.message_id is None:
            raise BadInput(f"Root {root.root:#018x} has no message id, so its source cannot find the message.")
        if root.at_ms < self._now_ms - REMEMBERED_MS:
            days = REMEMBERED_MS // (24 * 3600 * 1000)
            raise BadInput(
                f"Root {root.root:#018x} failed more than {days} days ago, and whether it was replayed since is no "
                "longer known: send its message to the source again."
            )

    def request(self, roots: Sequence[FailedRoot]) -> Requested:
        """Notes durably that the messages are to be tried again. Requesting the same roots again changes nothing."""
        for root in roots:
            self.check(root)
        noted = again = 0
        by_spout: dict[str, list[FailedRoot]] = {}
        for root in roots:
            by_spout.setdefault(root.spout, []).append(root)
        for spout, some in by_spout.items():
            self._shards.forget_replayed(self._spouts[spout], self._now_ms - REMEMBERED_MS)
            while some:
                part, some = some[:_AT_ONCE], some[_AT_ONCE:]
                states = self._send(self._spouts[spout], part)
                noted += states.count(b"noted")
                again += states.count(b"again")
                # Another request for the same message came in between, perhaps one of these: try again.
                some = [one for one, state in zip(part, states, strict=True) if state == b"changed"] + some
        return Requested(noted, again)

    def _send(self, number: int, roots: Sequence[FailedRoot]) -> list[bytes]:
        names = [id_to_text(root.message_id) for root in roots if root.message_id is not None]
        books = self._read(self._shards.retries(number), names)
        requests = self._read(self._shards.requests(number), names)
        return self._shards.request(
            number, (self._args(*one) for one in zip(roots, names, books, requests, strict=True))
        )

    def _read(self, found: StoredHash, names: list[str]) -> list[tuple[bytes, Retry]]:
        """What is stored of each message, as text and as it reads: nothing where nothing is, or it was set aside."""
        stored: list[tuple[bytes, Retry]] = []
        for name, text in zip(names, found.get_all(names), strict=True):
            try:
                stored.append((text, Retry.from_json(text)) if text else (b"", Retry()))
            except Unreadable as error:
                Quarantine(self._shards).set_aside_field(found, name.encode(), text or b"", error)
                stored.append((b"", Retry()))
        return stored

    def _args(
        self, root: FailedRoot, name: str, book: tuple[bytes, Retry], request: tuple[bytes, Retry]
    ) -> list[Argument]:
        known = max(book[1], request[1], key=lambda one: one.attempt)
        retry = ""
        if known.attempt < root.attempt:
            retry = Retry([*known.history, root.as_attempt()], 0, known.payload, known.stream).to_json()
        return [name, root.root.to_bytes(8, "big"), self._now_ms, request[0], retry]
