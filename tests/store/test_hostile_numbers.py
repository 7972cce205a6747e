"""Numbers that another program, or a stolen password, has put into the store: none of them is taken on trust."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from redis_acker import Acker, Rotator, new_edges
from redis_acker.errors import SettingsMismatch, Unreadable, UnreadableRun
from redis_acker.store.progress import RunProgress
from redis_acker.store.run_records import Place, field_of
from redis_acker.store.spout_states import SpoutState, SpoutStates
from redis_acker.store.tracked_streams import TrackedStreams
from redis_acker.views.overview import read_overview
from redis_acker.views.probes import Probe
from tests.backends import Backend, Servers
from tests.cli.stored_runs import StoredRun
from tests.clock import Clock

SPOUT = "orders"
HUGE = b"9" * 5000
MOST = str(2**63 - 1).encode()


@pytest.fixture
def acker(backend: Backend, namespace: str, clock: Clock) -> Iterator[Acker]:
    with Acker(backend.target, namespace=namespace, shards=1, clock=clock) as opened:
        yield opened


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("shards", b"1000000000"),
        ("shards", HUGE),
        ("buckets", b"1"),
        ("buckets", b"65"),
        ("timeout_ms", b"-1"),
        ("timeout_ms", b"30 000"),
        ("block_size", b"0"),
        ("block_size", b"\xff\x1b[2J"),
        ("ack_restarts_clock", b"yes"),
    ],
)
def test_settings_that_no_client_has_stored_are_refused_in_one_sentence(
    setting: str, value: bytes, acker: Acker, backend: Backend
) -> None:
    acker.shards.ask(0, "HSET", acker.shards.keys[0].meta, setting, value)
    with pytest.raises(Unreadable, match=rf"{setting}=.*another program") as caught:
        Acker(backend.target, namespace=acker.namespace, create=False)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 500


def test_a_number_of_servers_that_makes_no_sense_is_not_ours(acker: Acker, backend: Backend) -> None:
    acker.shards.ask(0, "HSET", acker.shards.keys[0].meta, "servers", HUGE)
    with pytest.raises(SettingsMismatch):
        Acker(backend.target, namespace=acker.namespace, create=False)


@pytest.mark.parametrize("junk", [b"junk", b"", HUGE, MOST, b"-1", b"0", b"4096", b"1e300", b"nan"])
def test_a_spout_whose_number_is_none_hides_no_other_and_gets_its_own_again(junk: bytes, acker: Acker) -> None:
    number = acker.spout_number(SPOUT)
    for name in (b"\xff\xfe", b"returns"):
        acker.shards.ask(0, "HSET", acker.shards.keys[0].spouts, name, junk)
    assert acker.known_spouts() == {SPOUT: number}
    assert [one.name for one in read_overview(acker).spouts] == [SPOUT]
    assert 0 < acker.spout_number("returns") != number
    assert 0 < acker.spout_number("clicks") != number
    assert acker.known_spouts().keys() == {SPOUT, "returns", "clicks"}


@pytest.mark.parametrize("junk", [b"junk", HUGE, MOST, b"-" + MOST, b"1e300", b"nan"])
def test_counters_that_cannot_be_counted_up_stop_neither_acks_nor_timeouts(
    junk: bytes, acker: Acker, clock: Clock
) -> None:
    roots, edges = acker.allocate(SPOUT, 30), new_edges(30)
    acker.init(roots, edges)
    number = acker.spout_number(SPOUT)
    names = ["acked", f"completed:{number}", f"timeout:{number}", "newest_ms", "early_bytes", "late_ms", "component:x"]
    for name in names:
        acker.shards.ask(0, "HSET", acker.shards.keys[0].counters, name, junk)
    assert acker.ack(roots[:10], edges[:10]).completed == 10
    assert acker.ack(roots[10:11], edges[10:11]).completed == 1
    clock.advance(20_000)
    acker.init(acker.allocate(SPOUT, 1), new_edges(1))
    expired = 0
    for _ in range(5):
        clock.advance(15_000)
        expired += Rotator(acker).once().expired
    assert expired == 20
    assert acker.stats().shards[0].shard == 0


@pytest.mark.parametrize("junk", [b"junk", b"", HUGE, MOST, b"-1", b"1e300", b"nan"])
@pytest.mark.parametrize("field", ["turned_ms", "tick"])
def test_roots_expire_whatever_stands_where_the_rotation_keeps_its_time(
    field: str, junk: bytes, acker: Acker, clock: Clock
) -> None:
    roots, edges = acker.allocate(SPOUT, 30), new_edges(30)
    acker.init(roots, edges)
    clock.advance(15_000)
    assert Rotator(acker).once().turned == 1
    acker.extend(roots[:3])
    acker.shards.ask(0, "HSET", acker.shards.keys[0].meta, field, junk)
    acker.extend(roots[3:5])
    assert len(list(acker.pending())) == 30
    expired = 0
    for _ in range(5):
        expired += Rotator(acker).once().expired
        clock.advance(15_000)
    assert expired == 30


@pytest.mark.parametrize("junk", [b"junk", b"", HUGE, MOST, b"-1", b"1e300", b"nan"])
def test_sequences_that_are_no_numbers_are_counted_on_from_the_time(junk: bytes, acker: Acker) -> None:
    before = acker.allocate(SPOUT, 1)
    acker.shards.ask(0, "HSET", acker.shards.keys[0].sequences, acker.spout_number(SPOUT), junk)
    after = [acker.allocate(SPOUT, 1)[0] for _ in range(3)]
    assert before[0] <= after[0] < after[1] < after[2]


@pytest.mark.parametrize("junk", [b"junk", HUGE, MOST, b"-1", b"1e300", b"nan"])
@pytest.mark.parametrize("counter", ["components", "early_bytes"])
def test_counters_that_set_a_limit_stop_no_fail_and_no_early_ack(counter: str, junk: bytes, acker: Acker) -> None:
    roots, edges = acker.allocate(SPOUT, 2_000), new_edges(2_000)
    acker.shards.ask(0, "HSET", acker.shards.keys[0].counters, counter, junk)
    assert acker.ack(roots[:600], edges[:600]).applied == 600
    assert acker.fail(roots[600:601], component="a").kept == 1
    assert acker.init(roots, edges).completed == 600
    assert acker.fail(roots[601:602], component="b").failed == 1


@pytest.mark.parametrize("rows", [10**9, 10**12, 10**15])
def test_a_portion_of_more_rows_than_there_can_be_is_not_turned_into_roots(acker: Acker, rows: int) -> None:
    run, place = StoredRun(acker, SPOUT), Place(field_of(0, 0), 0, 0)
    progress = RunProgress(acker, acker.spout_number(SPOUT), run.name)
    assert progress.begin(place, 30, 1).state == "new"
    key = acker.shards.keys[0].progress(acker.spout_number(SPOUT))
    text: Any = acker.shards.ask(0, "HGET", key, place.partition)
    words = text.decode().split()
    words[3] = str(rows)
    acker.shards.ask(0, "HSET", key, place.partition, " ".join(words))
    with pytest.raises(UnreadableRun, match="runs drop"):
        progress.begin(place, 30, 1)
    with pytest.raises(UnreadableRun, match="runs drop"):
        progress.leave(place.partition)
    words[3], words[9] = "30", str(rows)
    acker.shards.ask(0, "HSET", key, place.partition, " ".join(words))
    with pytest.raises(UnreadableRun, match="runs drop"):
        progress.begin(place, 30, 1)


@pytest.mark.parametrize("junk", [b"junk", b"", HUGE, MOST, b"-1", b"1e300", b"nan"])
def test_what_is_said_of_spouts_is_read_with_its_bounds(junk: bytes, acker: Acker) -> None:
    number, keys = acker.spout_number(SPOUT), acker.shards.keys[0]
    said = f"{number} lag", junk, f"{number} paused", junk, junk + b" lag", b"1"
    acker.shards.ask(0, "HSET", keys.spout_states, *said)
    acker.shards.ask(0, "HSET", keys.tracked_streams, SPOUT, b'{"format":1,"query":"q","batch":' + b"9" * 4000 + b"}")
    assert [one.name for one in read_overview(acker).spouts] == [SPOUT]
    assert TrackedStreams(acker).batches() == {}
    states = SpoutStates(acker.shards)
    assert states.is_paused(number) == (states.all().get(number, SpoutState()).paused_ms is not None)


def test_a_probe_reads_no_more_shards_than_there_can_be(servers: Servers, namespace: str) -> None:
    server = servers.get("redis-7.0")
    with Acker(server.url, namespace=namespace) as acker:
        meta = acker.shards.keys[0].meta
        for shards in (b"x", HUGE, b"10000000000"):
            acker.shards.ask(0, "HSET", meta, "shards", shards, "buckets", b"1", "turned_ms", b"x")
            with Probe(server.url, namespace, timeout_s=10) as probe, pytest.raises(Unreadable, match="shards="):
                probe.readiness()
        acker.shards.ask(0, "HSET", meta, "shards", 1)
        with Probe(server.url, namespace, timeout_s=10) as probe:
            assert probe.readiness().problems == []
        acker.shards.ask(0, "DEL", meta)
