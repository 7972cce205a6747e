"""How far the next micro-batch reads, what its tasks read, and what may be deleted. It knows nothing of Spark."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from redis_acker.spouts.user_streams import FIRST_ID, StreamInfo, UserStreams, order_of
from spark_integration.errors import EntriesMissing
from spark_integration.sources.offsets import Offset, PlaceInStream
from spark_integration.sources.options import SourceOptions

_ALL = 2**62

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Range:
    """The entries that one task reads."""

    shard: int
    after: str
    last: str
    count: int


class Planner:
    """Plans the micro-batches of one query."""

    def __init__(self, streams: UserStreams, options: SourceOptions) -> None:
        self._streams, self._options = streams, options
        self._goals: dict[str, StreamInfo] | None = None
        self._committed: dict[str, str] = {}
        self._is_full: bool | None = None
        """None until it was looked at: what is noted may be from a process before."""

    def freeze(self) -> None:
        """Takes what is there now for all there will ever be."""
        self._goals = self._infos()

    def latest(self, start: Offset, most: int) -> Offset:
        """Where a batch of at most so many entries ends; `start` itself if there is none to read."""
        infos, since = self._infos(), dict[str, PlaceInStream]()
        before = dict[str, PlaceInStream]()
        for name, info in infos.items():
            if name not in start.places:
                since[name] = self._begin(info)
            before[name] = self._checked(name, start.places.get(name) or since[name], info)
        goals = self._goals or infos
        ahead = {name: max(0, goals[name].added - before[name].count) for name in infos}
        most = self._admit(most, infos, before, sum(ahead.values()))
        takes = share(most, list(ahead.values()))
        after = {
            name: self._advance(name, before[name], goals[name], take, ahead[name])
            for (name, take) in zip(infos, takes, strict=True)
        }
        if not any(takes) and before == {**since, **start.places} and (not since or self._options.start == "oldest"):
            return start
        if self._options.release == "finished":
            for name, place in after.items():
                self._note(name, place, is_new=name in since)
        return Offset(after, since)

    def ranges(self, start: Offset, end: Offset) -> list[Range]:
        """What the tasks of a batch read: the same entries whenever it is planned."""
        return [one for shard, name in enumerate(self._streams.names) for one in self._ranges(shard, name, start, end)]

    def commit(self, end: Offset) -> None:
        """Notes that no entry up to this offset is read again, and deletes what is finished."""
        for name, place in end.places.items():
            shard = self._shard(name)
            if self._options.release == "never" or self._committed.get(name) == place.id:
                continue
            if self._options.release == "committed":
                self._streams.trim(shard, place.id)
            else:
                self._streams.commit(shard, place.id)
            self._committed[name] = place.id

    def newest(self) -> Offset:
        """The end of all streams, for people."""
        return Offset({name: PlaceInStream(one.last, one.added) for name, one in self._infos().items()})

    # -- how far ------------------------------------------------------------------------------------------------

    def _infos(self) -> dict[str, StreamInfo]:
        return {name: self._streams.info(shard) for shard, name in enumerate(self._streams.names)}

    def _shard(self, name: str) -> int:
        return self._streams.names.index(name)

    def _begin(self, info: StreamInfo) -> PlaceInStream:
        if self._options.start == "newest":
            return PlaceInStream(info.last, info.added, info.deleted)
        return PlaceInStream(FIRST_ID, info.added - info.length, info.deleted)

    def _admit(self, most: int, infos: dict[str, StreamInfo], places: dict[str, PlaceInStream], ahead: int) -> int:
        """How many entries may be read. All up to a place are delivered; those that are there still are not finished,
        or wait for their batch to be committed."""
        limit = self._options.max_pending
        if limit is None:
            return most
        pending = sum(
            max(0, info.length - (info.added - places[name].count) - self._streams.finished_count(self._shard(name)))
            for name, info in infos.items()
        )
        is_full = pending >= limit and ahead > 0
        if is_full and not self._is_full:
            log.warning(
                "%d entries are delivered and not finished, which is max_pending: %d others wait in %s until some are.",
                pending,
                ahead,
                self._streams.names,
            )
        if is_full != self._is_full:
            self._is_full = is_full
            self._streams.note(0, is_full=int(is_full))
        return max(0, min(most, limit - pending))

    def _note(self, name: str, place: PlaceInStream, *, is_new: bool) -> None:
        # What a query before has committed, with another checkpoint, must not delete what this one may read again.
        new = {"committed": FIRST_ID} if is_new else {}
        self._streams.note(self._shard(name), delivered=place.count, **new)

    def _advance(self, name: str, place: PlaceInStream, goal: StreamInfo, take: int, ahead: int) -> PlaceInStream:
        if take == 0:
            return place
        if take == ahead:
            return replace(place, id=goal.last, count=goal.added)
        found, last = self._streams.count(self._shard(name), place.id, goal.last, take)
        if found == take:
            return replace(place, id=last, count=place.count + take)
        self._report(name, place.id, goal.last, ahead - found)
        return replace(place, id=goal.last, count=goal.added, skipped=place.skipped + ahead - found)

    # -- what is missing ----------------------------------------------------------------------------------------

    def _checked(self, name: str, place: PlaceInStream, info: StreamInfo) -> PlaceInStream:
        """The place itself, if all entries behind it that were ever added are there. XTRIM takes the oldest, so what it
        took shows in the first; XDEL takes any, and the server remembers the highest."""
        ahead, here = info.added - place.count, order_of(place.id)
        is_at_first = info.first is None or order_of(info.first) > here
        is_deleted = order_of(info.deleted) > max(here, order_of(place.deleted))
        if ahead >= 0 and not is_deleted and (ahead == info.length or not is_at_first):
            return place
        if ahead < 0 or order_of(info.last) < here:
            raise EntriesMissing(
                f"The stream {name!r} was deleted and created again: {place.count:,} entries had been added up to "
                f"{place.id}, where the query is, and {info.added:,} to the new one. Start with another checkpoint."
            )
        there, _ = self._streams.count(self._shard(name), place.id, info.last, _ALL)
        if ahead > there:
            self._report(name, place.id, info.last, ahead - there)
        return replace(
            place, count=info.added - there, deleted=info.deleted, skipped=place.skipped + max(0, ahead - there)
        )

    def _report(self, name: str, after: str, last: str, missing: int) -> None:
        report_missing(name, after, last, missing, fail=self._options.missing == "fail")

    # -- what tasks read ----------------------------------------------------------------------------------------

    def _ranges(self, shard: int, name: str, start: Offset, end: Offset) -> Iterator[Range]:
        if name not in end.places:
            return
        after, last = end.place_before(name, start), end.places[name]
        expected = (last.count - after.count) - (last.skipped - after.skipped)
        if expected == 0:
            return
        tasks = -(-expected // self._options.rows_per_partition)
        at, found = after.id, 0
        while True:
            count, cut = self._streams.count(shard, at, last.id, -(-expected // tasks))
            if not count:
                break
            yield Range(shard, at, cut, count)
            at, found = cut, found + count
        if found < expected:
            self._report(name, after.id, last.id, expected - found)


def report_missing(name: str, after: str, last: str, missing: int, *, fail: bool) -> None:
    why = (
        f"{missing:,} entries of the stream {name!r} behind {after} and up to {last} are gone before they were "
        "processed: somebody has trimmed the stream, or deleted them."
    )
    if fail:
        raise EntriesMissing(f"{why} Set the option missing=skip to go on without them.")
    log.error("%s The query goes on without them.", why)


def share(most: int, wanted: Sequence[int]) -> list[int]:
    """Deals out as evenly as it is wanted."""
    given, left = [0] * len(wanted), most
    for dealt, one in enumerate(sorted(range(len(wanted)), key=lambda one: wanted[one])):
        given[one] = min(wanted[one], left // (len(wanted) - dealt))
        left -= given[one]
    return given
