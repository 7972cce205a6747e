"""Ids for messages that have none of their own."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from hashlib import blake2b

from redis_acker.store.message_ids import MessageId

_PREFIX = "body:"


def is_body_id(message_id: MessageId) -> bool:
    return isinstance(message_id, str) and message_id.startswith(_PREFIX)


class BodyIds:
    """An id is the hash of the body, and the lowest number that no other message with that body has.

    Messages with equal bodies are interchangeable. It does not matter which of them gets which number after a restart,
    as long as the completion of a number acks one of them, once.
    """

    def __init__(self) -> None:
        self._used: dict[str, int] = {}
        self._free: dict[str, list[int]] = {}
        self._retired: set[MessageId] = set()

    def assign(self, body: bytes) -> str:
        digest = blake2b(body, digest_size=16).hexdigest()
        while True:
            if free := self._free.get(digest):
                number = heapq.heappop(free)
            else:
                number = self._used.get(digest, 0)
                self._used[digest] = number + 1
            message_id = f"{_PREFIX}{digest}:{number}"
            if message_id not in self._retired:
                return message_id

    def release(self, message_id: MessageId) -> None:
        """The source has forgotten the message with this id: another message may get it."""
        if is_body_id(message_id):
            digest = self._add_free(message_id)
            if len(self._free[digest]) == self._used[digest]:
                del self._free[digest], self._used[digest]

    def start_over(self, unfinished: Iterable[MessageId]) -> None:
        """All messages will be delivered again. Unfinished ones get their old ids before any new id is used."""
        self._free = {}
        digests = {self._add_free(one) for one in unfinished if is_body_id(one)}
        self._used = {digest: number for digest, number in self._used.items() if digest in digests}

    def retire(self, message_id: MessageId) -> None:
        """Never assigns this id again: it was finished before its message came, which the source may have forgotten."""
        if is_body_id(message_id):
            self._retired.add(message_id)

    def _add_free(self, message_id: MessageId) -> str:
        _, digest, number = str(message_id).split(":")
        heapq.heappush(self._free.setdefault(digest, []), int(number))
        return digest
