"""How far a batch reads, without Spark."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from redis_acker.spouts.user_streams import UserStreams
from spark_integration.errors import BadCheckpoint
from spark_integration.sources.offsets import Offset
from spark_integration.sources.options import SourceOptions
from spark_integration.sources.planner import Planner, share

Fill = Callable[..., list[str]]


@pytest.fixture
def streams(url: str, stream: str) -> Iterator[UserStreams]:
    found = UserStreams(url, [stream])
    yield found
    found.close()


def test_a_query_that_has_to_wait_says_so_once(
    streams: UserStreams, fill: Fill, stream: str, caplog: pytest.LogCaptureFixture
) -> None:
    ids = [one.rpartition("/")[2] for one in fill(range(30))]
    planner = Planner(streams, SourceOptions(stream, release="finished", max_pending=10))
    first = planner.latest(Offset(), 1000)
    for _ in range(3):
        assert planner.latest(first, 1000) == first
    said = caplog.messages
    streams.finish(0, ids[:4])
    second = planner.latest(first, 1000)
    planner.latest(second, 1000)

    assert [one.places[stream].count for one in (first, second)] == [10, 14]
    assert said == [
        f"10 entries are delivered and not finished, which is max_pending: 20 others wait in ['{stream}'] until some "
        "are."
    ]
    assert len(caplog.messages) == 2


@pytest.mark.parametrize("release", ["finished", "never"])
def test_the_entries_of_a_batch_are_the_same_whenever_it_is_planned(
    streams: UserStreams, fill: Fill, stream: str, release: str
) -> None:
    ids = [one.rpartition("/")[2] for one in fill(range(100))]
    options = SourceOptions(stream, release=release, rows_per_partition=7)
    planner = Planner(streams, options)
    ends = [Offset()]
    for _ in range(4):
        ends.append(planner.latest(ends[-1], 25))
        streams.finish(0, ids)
        fill(range(3))
        if release == "finished":
            planner.commit(ends[-2])
        found = [
            entry.decode()
            for one in Planner(streams, options).ranges(ends[-2], ends[-1])
            for entry, _ in streams.entries(0, one.after, one.last, 1000)
        ]
        start = 25 * (len(ends) - 2)
        assert found == ids[start : start + 25]


def test_offsets_are_read_as_they_were_written(streams: UserStreams, fill: Fill, stream: str) -> None:
    fill(range(3))
    found = Planner(streams, SourceOptions(stream)).latest(Offset(), 2)

    assert Offset.from_json(found.to_json(), [stream]) == found


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"version": 2}, "offsets of version 2, and this redis-acker reads version 1: use the version that wrote them"),
        ({"version": None}, "offsets of version None"),
        ({"streams": {"other": {}}}, r"belongs to the stream 'other', which is none of \['orders'\]"),
        ({"streams": {"orders": {"new": 1}}}, "offsets that this source has not written"),
        ({"streams": 7}, "offsets that this source has not written"),
    ],
)
def test_offsets_of_others_are_refused(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadCheckpoint, match=sentence):
        Offset.from_json({**Offset().to_json(), **change}, ["orders"])


def test_what_may_be_read_is_dealt_out_evenly() -> None:
    assert share(10, [100, 100]) == [5, 5]
    assert share(10, [2, 100]) == [2, 8]
    assert share(1, [5, 5, 5]) == [0, 0, 1]
    assert share(100, [3, 0, 5]) == [3, 0, 5]
    assert share(0, [3, 5]) == [0, 0]
