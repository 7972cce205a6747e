"""Streams that are read by ranges: what is finished and committed goes, and nothing else, wherever a process stops."""

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from redis_acker.errors import BadInput, ServerUnavailable, UnsupportedServer, WrongKeyType
from redis_acker.spouts.user_streams import FIRST_ID, UserStreams, note_key, order_of, stream_names
from tests.backends import Keeper, Servers, make_backend
from tests.servers import start_server
from tests.spouts.stops import Stopped, StoppingStreams


@pytest.fixture(params=["redis-7.0", "valkey-9.1", "cluster"])
def streams(request: pytest.FixtureRequest, servers: Servers, namespace: str) -> Iterator[StoppingStreams]:
    found = StoppingStreams(servers.get(request.param).url, stream_names(namespace, 2))
    yield found
    found.close()
    make_backend(request.param, servers).delete_keys(namespace)


def fill(streams: UserStreams, entries: int) -> list[str]:
    """Ids that sort as texts in another order than as ids."""
    ids = [f"{9 + number // 3}-{8 + number % 3}" for number in range(entries)]
    for one in ids:
        streams.run_on(1, "XADD", streams.names[1], one, "n", 1)
    return ids


def left(streams: UserStreams) -> list[str]:
    return [entry.decode() for entry, _ in streams.entries(1, FIRST_ID, "+", 1000)]


@pytest.mark.parametrize("before", [True, False])
def test_exactly_what_is_finished_and_committed_is_deleted_wherever_a_process_stops(
    streams: StoppingStreams, before: bool
) -> None:
    for call in count():
        ids = fill(streams, 9)
        steps = [
            lambda ids=ids: streams.finish(1, [ids[place] for place in (0, 2, 6, 7)]),
            lambda ids=ids: streams.commit(1, ids[6]),
        ]
        streams.stop_at(call, before=before)
        has_stopped = False
        while steps:  # who is stopped in a step does that one again, and not those before
            try:
                steps[0]()
            except Stopped:
                has_stopped = True
                assert set(ids) - set(left(streams)) <= {ids[0], ids[2], ids[6]}
            else:
                steps.pop(0)
        streams.stop_at(None)
        assert left(streams) == [one for place, one in enumerate(ids) if place not in (0, 2, 6)]
        assert streams.finished_count(1) == 1
        streams.run_on(1, "DEL", streams.names[1])
        streams.run_on(1, "DEL", note_key(streams.names[1], "finished"))
        streams.run_on(1, "DEL", note_key(streams.names[1], "reader"))
        if not has_stopped:
            break
    assert call > 5


def test_an_entry_that_is_finished_after_its_batch_was_committed_goes_at_once(streams: StoppingStreams) -> None:
    ids = fill(streams, 3)
    streams.commit(1, ids[1])
    streams.finish(1, ids)

    assert left(streams) == ids[2:]


def test_a_stream_is_described_as_its_server_counts(streams: StoppingStreams) -> None:
    empty = streams.info(1)
    ids = fill(streams, 9)
    streams.run_on(1, "XDEL", streams.names[1], ids[4])
    streams.trim(1, ids[2])
    found = streams.info(1)

    assert (empty.added, empty.length, empty.first, empty.last) == (0, 0, None, FIRST_ID)
    assert (found.added, found.length, found.first, found.last, found.deleted) == (9, 5, ids[3], ids[8], ids[4])
    assert streams.count(1, ids[3], ids[7], 1000) == (3, ids[7])
    assert streams.count(1, ids[3], ids[7], 2) == (2, ids[6])
    assert streams.count(1, ids[8], "+", 5) == (0, ids[8])


def test_large_entries_are_counted_in_many_short_calls(streams: StoppingStreams) -> None:
    for number in range(1, 31):
        streams.run_on(1, "XADD", streams.names[1], f"{number}-0", "body", b"x" * 200_000)
    calls: list[Any] = []
    run = streams.run
    streams.run = lambda commands: run(calls.append(one) or one for one in commands)  # type: ignore

    assert streams.count(1, "3-0", "25-0", 1000) == (22, "25-0")
    assert len(calls) == 4


def test_a_long_stream_is_trimmed_to_the_entry(streams: StoppingStreams, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redis_acker.spouts.user_streams._TRIMMED_AT_ONCE", 200)
    ids = fill(streams, 1050)
    streams.trim(1, ids[1037])

    assert left(streams) == ids[1038:]


def test_ids_sort_as_numbers() -> None:
    ids = ["0-1", "2-9", "2-10", "10-0", f"{2**64 - 1}-{2**64 - 1}"]

    assert sorted(ids, key=order_of) == ids


def test_names_of_streams_share_a_node_with_their_notes() -> None:
    assert stream_names("orders", 1) == ["orders"]
    assert stream_names("orders", 2) == ["orders:0", "orders:1"]
    assert note_key("orders:0", "reader") == "acker-stream:{orders:0}:reader"
    assert note_key("a{b}c", "reader") == "acker-stream:{b}:a{b}c:reader"
    for wrong in ("", "a{", "a}b", "{}"):
        with pytest.raises(BadInput, match="The name of a stream is a text"):
            stream_names(wrong, 1)


def test_a_server_that_does_not_count_what_was_added_is_refused(servers: Servers, namespace: str) -> None:
    streams = UserStreams(servers.get("redis-6.2").url, [namespace])
    streams.run_on(0, "XADD", namespace, "*", "n", 1)

    with pytest.raises(UnsupportedServer, match=r"use Redis 7.0 or newer, or Valkey"):
        streams.info(0)
    streams.run_on(0, "DEL", namespace)
    streams.close()


def test_a_key_that_is_no_stream_is_named(servers: Servers, namespace: str) -> None:
    streams = UserStreams(servers.get("redis-7.0").url, [namespace])
    streams.run_on(0, "SET", namespace, "text")

    with pytest.raises(WrongKeyType, match=f"A key of \\['{namespace}'\\] does not hold a stream"):
        streams.info(0)
    streams.run_on(0, "DEL", namespace)
    streams.close()


def test_a_server_that_is_away_is_waited_for_and_that_is_said(
    keeper: Keeper, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redis_acker.spouts.user_streams._RETRY_FOR_S", 0.1)
    server = keeper.keep(start_server("redis-7.0"))
    streams = UserStreams(server.url, ["orders"])
    server.kill()

    def come_back(record: Any) -> bool:
        server.restart()
        return True

    caplog.handler.addFilter(come_back)  # when the first line was logged
    try:
        assert streams.info(0).length == 0
    finally:
        caplog.handler.removeFilter(come_back)  # all tests share this handler
    assert "did not answer" in caplog.text
    assert "It is waited for." in caplog.text
    streams.close()
    server.kill()
    impatient = UserStreams(server.url, ["orders"], away_s=0)
    with pytest.raises(ServerUnavailable, match="did not answer"):
        impatient.info(0)
