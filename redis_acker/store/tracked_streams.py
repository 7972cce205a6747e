"""Which Spark streaming query has a spout, and which of its micro-batches are finished."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass

from redis_acker.errors import UnreadableRun
from redis_acker.store.acker import Acker

FORMAT = 1
"""The version of what is stored."""


@dataclass(frozen=True)
class TrackedStreamRecord:
    """What is known of the query of a spout."""

    query: str
    """The id that its checkpoint gives it, the same after a restart."""
    message_id: str
    """The column of the message ids."""
    batch: int = -1
    """Its last finished micro-batch; -1: none."""
    format: int = FORMAT


class TrackedStreams:
    """The records of a namespace, by spout."""

    def __init__(self, acker: Acker) -> None:
        self._shards, self._stored = acker.shards, acker.shards.tracked_streams()

    def get(self, spout: str) -> TrackedStreamRecord | None:
        text = self._stored.get(spout)
        return None if text is None else _read(spout, text)

    def put(self, spout: str, record: TrackedStreamRecord) -> None:
        self._stored.put({spout: json.dumps(asdict(record))})

    def batches(self) -> dict[str, int]:
        """By spout, how many micro-batches its query has finished; without what cannot be read."""
        found: dict[str, int] = {}
        for name, text in self._shards.tracked_streams_said():
            spout = name.decode(errors="replace")
            with suppress(UnreadableRun):
                found[spout] = _read(spout, text).batch + 1  # Spark numbers them from 0
        return found

    def spouts_of(self, query: str) -> Iterator[str]:
        """The spouts that a query has been tracked under."""
        for name, text in self._stored.items():
            spout = name.decode(errors="replace")
            if _read(spout, text).query == query:
                yield spout


def _read(spout: str, text: bytes) -> TrackedStreamRecord:
    try:
        data = json.loads(text)
        if data["format"] == FORMAT:
            record = TrackedStreamRecord(**data)
            if type(record.batch) is not int or not -1 <= record.batch < 1 << 63:
                raise TypeError(record.batch)
            return record
        why = f"is in format {data['format']}, and this version reads {FORMAT}: use the version that wrote it"
    except (ValueError, TypeError, KeyError, RecursionError):
        why = f"cannot be read ({reprlib.repr(text)}): another program has written there"
    raise UnreadableRun(f"The record of the stream of spout {spout!r} {why}.")
