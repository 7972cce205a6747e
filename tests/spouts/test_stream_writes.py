"""Batches that are written into streams: each entry once, wherever whoever writes them stops."""

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from typing import Any

import pytest

from redis_acker.errors import BadInput, MemoryFull, StagedGone, WrongKeyType
from redis_acker.spouts import stream_writes
from redis_acker.spouts.stream_writes import MOST_FIELDS, StagedPart, Staging, StreamWrites
from redis_acker.spouts.user_streams import stream_names
from tests.backends import Backend, Keeper, Servers, make_backend
from tests.proxy import CuttingProxy
from tests.servers import start_server
from tests.spouts.stops import Stopped, StoppingStreams

QUERY = "q"


class World:
    """Two streams, the writers of one query, and what has come of it."""

    def __init__(self, backend: Backend, url: str, namespace: str) -> None:
        self.client: Any = backend.client()
        self.names = stream_names(namespace, 2)
        self.streams = StoppingStreams(url, self.names)
        self.writes = StreamWrites(self.streams, QUERY)
        self._backend, self._namespace = backend, namespace

    def stage(self, numbers: range, batch: int, *, turn: int = 0, tasks: int = 2) -> list[StagedPart]:
        """What an attempt stages. turn: other attempts deal the same rows out in another way."""
        parts: list[StagedPart] = []
        for task in range(tasks):
            staging = Staging(self.streams, QUERY, batch)
            for number in numbers[len(numbers) * task // tasks : len(numbers) * (task + 1) // tasks]:
                staging.add((number + turn) % 2, [(b"n", str(number).encode())])
            parts += staging.finish()
        return parts

    def numbers(self) -> Counter[int]:
        return Counter(int(fields[b"n"]) for name in self.names for _, fields in self.client.xrange(name))

    def notes(self) -> set[str]:
        found = (key.decode() for key in self._backend.keys(self._namespace))
        return {key.split("}:")[1].split(":")[0] for key in found if key.startswith("acker-stream:")}

    def clear(self) -> None:
        self.streams.stop_at(None)
        self._backend.delete_keys(self._namespace)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_writes, "CHUNK_ENTRIES", 2)


@pytest.fixture(params=["redis-7.0", "valkey-9.1", "redis-6.2", "cluster"])
def world(request: pytest.FixtureRequest, servers: Servers, namespace: str) -> Iterator[World]:
    backend = make_backend(request.param, servers)
    found = World(backend, servers.get(request.param).url, namespace)
    yield found
    found.clear()
    found.streams.close()


def test_a_batch_is_appended_once_however_often_it_is_committed(world: World) -> None:
    world.writes.commit(0, world.stage(range(10), 0))
    world.writes.commit(0, world.stage(range(10), 0, turn=1, tasks=4))
    world.writes.commit(1, world.stage(range(10, 13), 1))
    world.writes.commit(0, world.stage(range(10), 0, tasks=1))

    assert world.numbers() == Counter(range(13))
    assert world.notes() == {"written"}


def test_a_stream_that_got_nothing_of_a_batch_knows_that_it_is_over(world: World) -> None:
    world.writes.commit(0, world.stage(range(1), 0))
    world.writes.commit(0, world.stage(range(1), 0, turn=1))

    assert world.numbers() == Counter([0])


@pytest.mark.parametrize("before", [True, False])
def test_a_commit_that_is_stopped_at_any_call_is_taken_up_where_it_was(world: World, before: bool) -> None:
    """By a driver whose tasks have staged the rows again, in another way."""
    for call in count():
        parts = world.stage(range(10), 7)
        world.streams.stop_at(call, before=before)
        with suppress(Stopped):
            world.writes.commit(7, parts)
        has_stopped = world.streams.has_stopped
        world.streams.stop_at(None)
        world.writes.commit(7, world.stage(range(10), 7, turn=1, tasks=3))
        world.writes.commit(8, world.stage(range(10, 12), 8))

        assert world.numbers() == Counter(range(12)), call
        assert world.notes() == {"written"}, call
        world.clear()
        if not has_stopped:
            break
    assert call > 10


def test_two_drivers_that_commit_the_same_batch_at_once_append_it_once(world: World) -> None:
    """The second one does all of it between any two calls of the first, and the batch after it too."""
    for call in count():
        parts, others = world.stage(range(10), 7), world.stage(range(10), 7, turn=1, tasks=3)
        second = StreamWrites(StoppingStreams(world.streams._servers.urls, world.names), QUERY)
        following = world.stage(range(10, 12), 8)

        def commit_both(second: StreamWrites = second, others: Any = others, following: Any = following) -> None:
            second.commit(7, others)
            second.commit(8, following)

        world.streams.stop_at(call, then=commit_both)
        world.writes.commit(7, parts)
        has_stopped = world.streams.has_stopped
        second._streams.close()
        if not has_stopped:
            break
        assert world.numbers() == Counter(range(12)), call
        world.clear()
    assert call > 10


def test_a_task_that_is_stopped_at_any_call_leaves_nothing_behind_the_commit(world: World) -> None:
    for call in count():
        world.streams.stop_at(call)
        with suppress(Stopped):
            world.stage(range(10), 3)
        has_stopped = world.streams.has_stopped
        world.streams.stop_at(None)
        world.writes.commit(3, world.stage(range(10), 3))

        assert world.numbers() == Counter(range(10))
        assert world.notes() == {"written"}
        world.clear()
        if not has_stopped:
            break
    assert call > 3


def test_what_a_batch_needs_is_kept_when_it_is_aborted_after_its_commit_began(world: World) -> None:
    parts = world.stage(range(10), 0)
    world.streams.stop_at(4)
    with pytest.raises(Stopped):
        world.writes.commit(0, parts)
    world.streams.stop_at(None)
    world.writes.abort(0, parts)
    world.writes.commit(0, [])

    assert world.numbers() == Counter(range(10))


def test_a_batch_that_is_aborted_before_leaves_no_rows(world: World) -> None:
    world.writes.abort(0, world.stage(range(10), 0))

    assert world.notes() == {"attempts"}
    assert all(world.client.ttl(key) > 0 for key in world.client.scan_iter(match=f"acker-stream:*{world.names[0]}*"))


def test_staged_rows_that_are_gone_are_missed(world: World) -> None:
    parts = world.stage(range(10), 0)
    world.client.delete(parts[2].key)

    with pytest.raises(StagedGone, match=r"Chunk 0 of \d of the rows that were staged for batch 0 of the stream"):
        world.writes.commit(0, parts)


def test_rows_wait_for_their_commit_for_days_and_not_for_ever(world: World) -> None:
    parts = world.stage(range(10), 0)
    staged = [world.client.ttl(part.key) for part in parts]
    world.streams.stop_at(4)
    with pytest.raises(Stopped):
        world.writes.commit(0, parts)
    committed = [world.client.ttl(part.key) for part in parts]

    assert all(23 * 3600 < one <= 24 * 3600 for one in staged)
    assert all(6 * 86_400 < one <= 7 * 86_400 for one in committed)


def test_lost_replies_change_nothing(servers: Servers, namespace: str) -> None:
    backend = make_backend("redis-7.0", servers)
    server = servers.get("redis-7.0")
    proxy = CuttingProxy("127.0.0.1", int(server.url.rpartition(":")[2].partition("/")[0]))
    world = World(backend, proxy.url, namespace)
    try:
        proxy.cut_randomly(0.3, 7)
        for batch in range(5):
            world.writes.commit(batch, world.stage(range(batch * 20, batch * 20 + 20), batch))
        proxy.cut_randomly(0, 0)
        assert proxy.cuts > 10
        assert world.numbers() == Counter(range(100))
        assert world.notes() == {"written"}
    finally:
        world.clear()
        world.streams.close()
        proxy.stop()


def test_a_key_that_is_no_stream_is_refused_before_anything_is_appended(world: World) -> None:
    world.client.set(world.names[1], "text")
    parts = world.stage(range(1, 10, 2), 0)

    with pytest.raises(WrongKeyType, match="does not hold a stream"):
        world.writes.commit(0, parts)
    world.client.delete(world.names[1])
    world.writes.commit(0, [])
    assert world.numbers() == Counter(range(1, 10, 2))


def test_a_batch_that_finds_memory_full_is_appended_when_there_is_room_again(keeper: Keeper, namespace: str) -> None:
    server = keeper.keep(start_server("redis-7.0"))
    world = World(Backend("redis-7.0", server.url, server.client), server.url, namespace)
    parts = world.stage(range(10), 0)
    world.client.config_set("maxmemory", 1)
    with pytest.raises(MemoryFull, match=r"refused to write to .* start again, which goes on"):
        world.writes.commit(0, parts)
    world.client.config_set("maxmemory", 0)
    world.writes.commit(0, parts)

    assert world.numbers() == Counter(range(10))
    world.streams.close()


def test_an_entry_has_fields_and_not_too_many(world: World) -> None:
    staging = Staging(world.streams, QUERY, 0)
    most = [(b"n", b"1")] * MOST_FIELDS
    staging.add(0, most)
    world.writes.commit(0, staging.finish())
    assert world.numbers() == Counter([1])
    for fields in ([], [*most, (b"n", b"1")]):
        with pytest.raises(BadInput, match="An entry of a stream has 1 to 3,000 fields"):
            staging.add(0, fields)
