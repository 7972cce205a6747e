"""Offsets of a query: how far it has come in each stream. Spark keeps them in its checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from redis_acker.spouts.user_streams import FIRST_ID
from spark_integration.errors import BadCheckpoint

VERSION = 1


@dataclass(frozen=True)
class PlaceInStream:
    """How far a query has come in one stream."""

    id: str = FIRST_ID
    """Of the last entry that was read."""
    count: int = 0
    """Entries that were ever added to the stream up to that one, read or not."""
    deleted: str = FIRST_ID
    """The highest id that was deleted when this was written."""
    skipped: int = 0
    """Entries that were gone before they were read, and are not waited for."""


@dataclass(frozen=True)
class Offset:
    """A place in each stream that the query has come to."""

    places: Mapping[str, PlaceInStream] = field(default_factory=dict)
    """Nothing for a stream that was never looked at."""
    since: Mapping[str, PlaceInStream] = field(default_factory=dict)
    """Where the query began in streams that it came to with this offset. The offset before does not know them, and a
    batch that is read again must begin there, whatever the stream holds by then."""

    def place_before(self, name: str, start: Offset) -> PlaceInStream:
        """Where the batch that ends here began."""
        found = start.places.get(name) or self.since.get(name)
        if found is None:
            raise BadCheckpoint(
                f"The offsets of a batch do not say where it began in the stream {name!r}: the checkpoint was changed "
                "by another program, so start with another one."
            )
        return found

    def to_json(self) -> dict[str, Any]:
        parts = {"streams": self.places, "since": self.since}
        named = {part: {name: dict(vars(one)) for name, one in places.items()} for part, places in parts.items()}
        return {"version": VERSION, **named}

    @classmethod
    def from_json(cls, value: dict[str, Any], names: Sequence[str]) -> Offset:
        version = value.get("version")
        if version != VERSION:
            raise BadCheckpoint(
                f"The checkpoint has offsets of version {version!r}, and this redis-acker reads version {VERSION}: use "
                "the version that wrote them or a newer one, or start with another checkpoint."
            )
        try:
            places, since = (
                {name: PlaceInStream(**place) for name, place in value[part].items()} for part in ("streams", "since")
            )
        except (KeyError, TypeError, AttributeError):
            raise BadCheckpoint(
                "The checkpoint has offsets that this source has not written: start with another checkpoint."
            ) from None
        if others := sorted(set(places) - set(names)):
            raise BadCheckpoint(
                f"The checkpoint belongs to the stream {others[0]!r}, which is none of {list(names)}: name the same "
                "stream and at least as many shards, or start with another checkpoint."
            )
        return cls(places, since)
