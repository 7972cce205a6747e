"""Dead letters: messages that were given up after their last attempt."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from redis_acker.errors import BadInput, Unreadable
from redis_acker.retries.book import DeadLetter, Retry
from redis_acker.store.acker import Acker
from redis_acker.store.message_ids import MessageId, id_to_text
from redis_acker.store.quarantine import Quarantine


class DeadLetters:
    """The dead letters of one spout, or of every spout of a namespace: read, count, replay and remove them."""

    def __init__(self, acker: Acker, *, spout: str | None = None) -> None:
        self._shards = acker.shards
        self._quarantine = Quarantine(acker.shards)
        self._numbers = acker.known_spouts(spout)
        self._letters = {name: acker.shards.dead(number) for name, number in self._numbers.items()}

    def __len__(self) -> int:
        return sum(map(len, self._letters.values()))

    def __iter__(self) -> Iterator[DeadLetter]:
        """Reads a page at a time. A letter that is there throughout comes exactly once; what is none is set aside."""
        for spout, letters in self._letters.items():
            seen = set[MessageId]()
            for letter in self._quarantine.readable(letters, partial(DeadLetter.from_json, spout)):
                if letter.message_id not in seen:
                    seen.add(letter.message_id)
                    yield letter

    def page(self, spout: str, cursor: bytes = b"0", at_once: int = 50) -> tuple[bytes, list[DeadLetter]]:
        """About so many letters of a spout from a cursor on, and the next cursor: b"0" after the last of them."""
        cursor, page = self._letters[spout].page(cursor, at_once)
        letters = list[DeadLetter]()
        for name, value in page:
            try:
                letters.append(DeadLetter.from_json(spout, name, value))
            except Unreadable as error:
                self._quarantine.set_aside_field(self._letters[spout], name, value, error)
        return cursor, letters

    def find(self, message_id: MessageId) -> list[DeadLetter]:
        """The letters with a message id, at most one per spout."""
        found = (self._get(spout, id_to_text(message_id)) for spout in self._letters)
        return [stored[1] for stored in found if stored is not None]

    def _get(self, spout: str, name: str) -> tuple[bytes, DeadLetter] | None:
        """A letter, as it is stored and as it reads."""
        value = self._letters[spout].get(name)
        try:
            return None if value is None else (value, DeadLetter.from_json(spout, name.encode(), value))
        except Unreadable as error:
            self._quarantine.set_aside_field(self._letters[spout], name.encode(), value or b"", error)
        return None

    def remove(self, letter: DeadLetter) -> bool:
        """Deletes a letter. False if it was not there."""
        return bool(self._letters[letter.spout].remove([id_to_text(letter.message_id)]))

    def replay(self, letter: DeadLetter, *, from_source: bool = False) -> bool:
        """Removes the letter and asks the driver of its spout for one more attempt. False if the letter is gone.

        The driver emits the values of the letter. from_source=True: it asks the source for the message, which only a
        source can hand out that keeps what it has finished with.
        """
        if not from_source and (letter.payload is None or not letter.is_readable):
            raise BadInput(
                f"The dead letter of message {letter.message_id!r} has no values to emit: replay it from the source, "
                "if that still has the message."
            )
        retry = Retry(letter.history, 0, None if from_source else letter.payload, letter.stream)
        name = id_to_text(letter.message_id)
        stored = self._get(letter.spout, name)
        if stored is None or stored[1] != letter:
            return False
        return self._shards.revive(self._numbers[letter.spout], name, stored[0], retry.to_json())
