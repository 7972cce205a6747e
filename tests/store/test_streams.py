"""Reading final events: each entry goes to one consumer, until it is released."""

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from redis_acker import Acker, Completion, new_edges
from redis_acker.clock import SystemClock
from redis_acker.store.event_reader import READ_COUNT, EventReader
from redis_acker.store.shards_streams import GROUP
from redis_acker.store.streams import FinalEvents
from redis_acker.store.transport import Command, Transport
from tests.backends import Backend, Servers, make_backend

SPOUT = "orders"


@pytest.fixture
def acker(backend: Backend, namespace: str) -> Iterator[Acker]:
    with Acker(backend.target, namespace=namespace, shards=2, block_size=1) as found:
        yield found


def complete(acker: Acker, count: int) -> list[int]:
    """Roots that complete one by one, so that each has an entry of its own."""
    roots, edges = acker.allocate(SPOUT, count), new_edges(count)
    acker.init(roots, edges)
    for root, edge in zip(roots, edges, strict=True):
        assert acker.ack(root, edge).completed == 1
    return [int(root) for root in roots]


def roots_of(outcomes: list[Completion]) -> list[int]:
    return sorted(root for outcome in outcomes for root in outcome.roots.tolist())


def consumers(acker: Acker, backend: Backend) -> set[str]:
    client: Any = backend.client()
    streams = [keys.completions(acker.spout_number(SPOUT)) for keys in acker.shards.keys]
    return {one["name"].decode() for stream in streams for one in client.xinfo_consumers(stream, GROUP)}


def test_nothing_is_read_before_something_is_complete(acker: Acker) -> None:
    with acker.completions(SPOUT) as reader:
        assert reader.read() == []
        roots = complete(acker, 3)
        assert roots_of(reader.read()) == roots
        assert reader.read() == []


def test_a_reader_that_comes_late_reads_from_the_beginning(acker: Acker) -> None:
    roots = complete(acker, 3)
    with acker.completions(SPOUT) as reader:
        assert roots_of(reader.read()) == roots


def test_what_is_released_is_gone(acker: Acker, backend: Backend) -> None:
    roots = complete(acker, 6)
    with acker.completions(SPOUT, consumer="a") as reader:
        outcomes = reader.read()
        reader.release(outcomes[:4])
    with acker.completions(SPOUT, consumer="a") as reader:
        assert roots_of(reader.read()) == roots_of(outcomes[4:])
        reader.release(outcomes)
    client: Any = backend.client()
    assert [client.xlen(keys.completions(acker.spout_number(SPOUT))) for keys in acker.shards.keys] == [0, 0]
    assert len(roots) == 6


def test_a_consumer_gets_back_what_it_held_before_its_restart(acker: Acker) -> None:
    """More of it than one read takes, and before anything new."""
    held = complete(acker, 2 * READ_COUNT + 20)
    first = acker.completions(SPOUT, consumer="a")
    while first.read():
        pass
    fresh = complete(acker, 2)
    again = acker.completions(SPOUT, consumer="a")
    seen: list[int] = []
    while outcomes := again.read():
        seen += roots_of(outcomes)
    assert sorted(seen[: len(held)]) == sorted(held)
    assert sorted(seen[len(held) :]) == sorted(fresh)


def test_two_consumers_share_the_entries(acker: Acker) -> None:
    first, second = acker.completions(SPOUT, consumer="a"), acker.completions(SPOUT, consumer="b")
    roots = complete(acker, 3)
    mine = roots_of(first.read())
    roots += complete(acker, 3)
    others = roots_of(second.read())
    assert sorted(mine + others) == sorted(roots)
    assert first.read() == second.read() == []


def test_entries_of_a_dead_consumer_are_claimed(acker: Acker) -> None:
    roots = complete(acker, 3)
    assert roots_of(acker.completions(SPOUT, consumer="dead").read()) == roots
    patient = acker.completions(SPOUT, consumer="patient", claim_after_ms=3_600_000)
    assert patient.read() == []
    heir = acker.completions(SPOUT, consumer="heir", claim_after_ms=0)
    outcomes = heir.read()
    assert roots_of(outcomes) == roots
    heir.release(outcomes)
    assert heir.read() == []


def test_more_entries_than_one_claim_takes_are_claimed(acker: Acker) -> None:
    roots = complete(acker, 2 * READ_COUNT + 20)
    dead = acker.completions(SPOUT, consumer="dead")
    while dead.read():
        pass
    heir = acker.completions(SPOUT, consumer="heir", claim_after_ms=0)
    seen: list[int] = []
    while outcomes := heir.read():
        seen += roots_of(outcomes)
        heir.release(outcomes)
    assert sorted(seen) == sorted(roots)


def test_consuming_releases_an_entry_when_the_next_is_asked_for(acker: Acker) -> None:
    roots = complete(acker, 3)
    reader = acker.completions(SPOUT, consumer="a")
    seen = [outcome.roots.tolist()[0] for outcome, _ in zip(reader.consume(), range(2), strict=False)]
    left = roots_of(acker.completions(SPOUT, consumer="a").read())
    assert sorted({*seen, *left}) == sorted(roots)
    assert len(left) == 1 + (seen[-1] in left)


def test_closing_leaves_the_group_only_when_nothing_is_held(acker: Acker, backend: Backend) -> None:
    complete(acker, 1)
    with acker.completions(SPOUT, consumer="idle") as idle, acker.completions(SPOUT, consumer="holder") as holder:
        assert holder.read()
        assert idle.read() == []
        assert consumers(acker, backend) >= {"holder"}
    assert consumers(acker, backend) == {"holder"}


def test_a_stream_that_was_lost_is_made_again(acker: Acker, backend: Backend) -> None:
    reader = acker.completions(SPOUT)
    roots = complete(acker, 2)
    assert roots_of(reader.read()) == roots
    client: Any = backend.client()
    for keys in acker.shards.keys:
        client.delete(keys.completions(acker.spout_number(SPOUT)))
    assert reader.read() == []
    roots = complete(acker, 2)
    assert roots_of(reader.read()) == roots


def test_an_entry_that_was_deleted_while_held_is_passed_over(acker: Acker, backend: Backend) -> None:
    complete(acker, 2)
    [first, *rest] = acker.completions(SPOUT, consumer="a").read()
    client: Any = backend.client()
    client.xdel(acker.shards.keys[first.shard].completions(acker.spout_number(SPOUT)), first.entry)
    assert roots_of(acker.completions(SPOUT, consumer="a").read()) == roots_of(rest)
    heir = acker.completions(SPOUT, consumer="b", claim_after_ms=0)
    assert roots_of(heir.read()) == roots_of(rest)


def test_a_read_waits_for_the_first_entry(acker: Acker, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, pauses = acker.completions(SPOUT), []

    def pause(self: SystemClock, event: object, seconds: float, within_s: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            complete(acker, 1)

    monkeypatch.setattr(SystemClock, "poll", pause)
    assert len(reader.read(wait_ms=3_600_000)) == 1
    assert len(pauses) == 3
    assert 0 < max(pauses) < 0.1


def test_a_read_that_waits_in_vain_returns_nothing(acker: Acker, monkeypatch: pytest.MonkeyPatch) -> None:
    passed = iter(range(1000))
    monkeypatch.setattr(SystemClock, "monotonic_s", lambda self: next(passed))
    monkeypatch.setattr(SystemClock, "poll", lambda *args: None)
    assert acker.completions(SPOUT).read(wait_ms=20_000) == []
    assert next(passed) > 20


def test_a_lost_reply_is_looked_for_in_what_the_consumer_holds(acker: Acker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server gave entries to this consumer, the reply never came, and the command was sent again."""
    reader: EventReader[Completion] = acker.completions(SPOUT)
    assert reader.read() == []
    roots, run = complete(acker, 3), Transport.run

    def lose_the_first_reply(self: Transport, commands: Any, **options: Any) -> list[Any]:
        monkeypatch.setattr(Transport, "run", run)
        commands = list(commands)
        self.run(commands)
        self.troubles += 1
        return self.run(commands)

    monkeypatch.setattr(Transport, "run", lose_the_first_reply)
    assert roots_of(reader.read()) == roots


def test_a_reader_can_be_closed_when_memory_is_full(servers: Servers, namespace: str) -> None:
    """Of the servers only 6.2 wants memory for leaving a group."""
    old = make_backend("redis-6.2", servers)
    client: Any = old.client()
    with Acker(old.target, namespace=namespace) as acker:
        reader = acker.completions(SPOUT)
        reader.read()
        client.config_set("maxmemory", 1)
        try:
            reader.close()
            assert acker.completions(SPOUT).read() == []
        finally:
            client.config_set("maxmemory", 0)
    old.delete_keys(namespace)


# -- both kinds at once ------------------------------------------------------------------------------------------------


def fail(acker: Acker, count: int) -> list[int]:
    roots = acker.allocate(SPOUT, count)
    acker.init(roots, new_edges(count))
    acker.fail(roots)
    return [int(root) for root in roots]


def of_kind(events: list[FinalEvents], kind: str) -> list[int]:
    return sorted(root for event in events if event.kind == kind for root in event.roots.tolist())


@pytest.fixture
def both(acker: Acker) -> EventReader[FinalEvents]:
    reader = EventReader[FinalEvents](acker, SPOUT, "completions", "failures", consumer="driver")
    assert reader.read() == []
    return reader


def test_both_kinds_come_by_one_command_to_each_shard(
    acker: Acker, both: EventReader[FinalEvents], monkeypatch: pytest.MonkeyPatch
) -> None:
    completed, failed, sent, run = complete(acker, 6), fail(acker, 6), list[Command](), Transport.run

    def note(self: Transport, commands: Iterable[Command], **options: Any) -> list[Any]:
        some = list(commands)
        sent.extend(some)
        return run(self, some, **options)

    monkeypatch.setattr(Transport, "run", note)
    events = both.read()
    assert (of_kind(events, "completions"), of_kind(events, "failures")) == (completed, failed)
    assert [(command.shard, command.args[0]) for command in sent] == [(0, "XREADGROUP"), (1, "XREADGROUP")]


def test_a_reader_of_both_kinds_reads_one_alone_if_it_is_told_so(acker: Acker, both: EventReader[FinalEvents]) -> None:
    completed, failed = complete(acker, 6), fail(acker, 6)
    events = both.read(only="completions")
    assert (of_kind(events, "completions"), of_kind(events, "failures")) == (completed, [])
    assert of_kind(both.read(), "failures") == failed


def test_each_kind_is_released_in_its_own_stream_and_the_other_comes_back(
    acker: Acker, both: EventReader[FinalEvents]
) -> None:
    complete(acker, 6)
    failed = fail(acker, 6)
    events = both.read()
    both.release([event for event in events if event.kind == "completions"])
    both.rewind()
    assert both.read() == []  # it has what it has not released
    again = EventReader[FinalEvents](acker, SPOUT, "completions", "failures", consumer="driver")
    held = again.read()
    assert (of_kind(held, "completions"), of_kind(held, "failures")) == ([], failed)
    again.release(held)
    assert acker.shards.unread("completions", acker.spout_number(SPOUT)) == [0, 0]
    assert acker.shards.unread("failures", acker.spout_number(SPOUT)) == [0, 0]
