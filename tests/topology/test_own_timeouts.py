"""A topology whose bolts have less time than its namespace allows."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Iterator, Set
from typing import Any

import pytest

from redis_acker import Acker, Bolt, LocalRunner, OutputCollector, Topology, TopologyBuilder, Tuple
from redis_acker.driver.options import DriverOptions
from redis_acker.errors import BadTopology
from redis_acker.spouts.iterable import IterableSpout
from redis_acker.testing import SimulatedTime, simulated_acker
from redis_acker.topology import local
from redis_acker.topology.local import OwnTimeouts
from redis_acker.topology.runner import EXTENDS_PER_TIMEOUT
from tests.backends import Servers, make_backend
from tests.topology.parts import NO_PAUSE, ONE_ATTEMPT, Does, Note, Relay, Shared, Watcher
from tests.topology.test_under_load import Slow
from tests.waiting import wait_until

TIMEOUT_MS = 400


@pytest.fixture
def patient_acker(servers: Servers, namespace: str) -> Iterator[Acker]:
    """A namespace in which nothing times out while a test runs."""
    backend = make_backend("redis-7.0", servers)
    with Acker(backend.target, namespace=namespace, timeout_ms=600_000) as acker:
        yield acker
    backend.delete_keys(namespace)


def hasty(bolt: Any, values: Any = range(5), timeout_ms: Any = TIMEOUT_MS) -> Topology:
    builder = TopologyBuilder("job", timeout_ms=timeout_ms)
    builder.spout("source", IterableSpout(values))
    builder.bolt("bolt", bolt).shuffle("source")
    return builder.build()


def test_a_bolt_that_hangs_is_named_and_replaced_after_the_timeout_of_its_topology(patient_acker: Acker) -> None:
    gate, hung, watcher = threading.Event(), Shared[int](), Watcher()

    def hang_once(collector: OutputCollector, tup: Tuple) -> None:
        if tup["value"] == 1 and not hung:
            hung.append(1)
            gate.wait(60)
        collector.ack(tup)

    with LocalRunner(hasty(Does(hang_once)), patient_acker, retries=NO_PAUSE, observer=watcher) as runner:
        assert runner.wait_until_idle(timeout_s=60)
        gate.set()
    assert sorted(watcher.completed) == [0, 1, 2, 3, 4]
    assert watcher.failed == [(1, "timeout")]
    assert patient_acker.stats().spouts[0].timeout == 1


def test_a_tuple_that_is_forgotten_fails_naming_the_bolt(patient_acker: Acker) -> None:
    watcher = Watcher()
    runner = LocalRunner(hasty(Does(lambda out, tup: None)), patient_acker, retries=ONE_ATTEMPT, observer=watcher)
    with runner:
        assert runner.wait_until_idle(timeout_s=60)
    assert len(watcher.letters) == 5
    for letter in watcher.letters:
        [attempt] = letter.history
        assert attempt.component == "bolt"
        words = r"the topology allows 0\.4 s: bolt was given it .* s ago and has neither acked nor failed it"
        assert re.fullmatch(words, attempt.error)


def test_of_several_bolts_that_have_a_message_the_one_is_named_that_has_had_it_for_longest() -> None:
    watcher = Watcher()

    def hang_on_one(collector: OutputCollector, tup: Tuple) -> None:
        time.sleep(math.inf if tup["value"] == 1 else 0)
        collector.ack(tup)

    def work(collector: OutputCollector, tup: Tuple) -> None:
        time.sleep(0.9)
        collector.ack(tup)

    with simulated_acker(timeout_ms=600_000) as (acker, time):
        builder = TopologyBuilder("job", timeout_ms=1_000)
        builder.spout("source", IterableSpout(range(5)))
        builder.bolt("hangs", Does(hang_on_one)).shuffle("source")
        builder.bolt("slow", Does(work)).shuffle("source")
        with LocalRunner(builder.build(), acker, retries=ONE_ATTEMPT, observer=watcher) as runner:
            assert runner.wait_until_idle()
    [letter] = watcher.letters
    assert (letter.message_id, letter.history[0].component) == (1, "hangs")


def test_what_waits_in_a_queue_does_not_time_out(patient_acker: Acker) -> None:
    watcher, note = Watcher(), Note()
    builder = TopologyBuilder("job", timeout_ms=TIMEOUT_MS)
    builder.spout("source", IterableSpout(range(40)))
    builder.bolt("slow", Slow(50)).shuffle("source")
    builder.bolt("note", note).shuffle("slow")
    with LocalRunner(builder.build(), patient_acker, observer=watcher) as runner:
        assert runner.wait_until_idle(timeout_s=60)
    assert (note.values, watcher.failed) == (list(range(40)), [])


def test_what_a_bolt_holds_back_has_a_whole_timeout_from_when_the_bolt_was_given_it() -> None:
    held, watcher = list[Tuple](), Watcher()

    class Holds(Bolt):
        def __init__(self, time: SimulatedTime) -> None:
            self._time = time

        def execute(self, tup: Tuple) -> None:
            if tup.is_tick:
                self.collector.ack(held.pop())
            elif tup["value"] == 1:
                held.append(tup)
            else:
                self._time.sleep(0.49)
                self.collector.ack(tup)

    with simulated_acker(timeout_ms=600_000) as (acker, time):
        builder = TopologyBuilder("job", timeout_ms=1_000)
        builder.spout("source", IterableSpout([0, 1]))
        builder.bolt("holds", Holds(time), tick_every_s=1.45).shuffle("source")
        with LocalRunner(builder.build(), acker, observer=watcher) as runner:
            assert runner.wait_until_idle()
    assert (sorted(watcher.completed), watcher.failed) == ([0, 1], [])


def test_a_tuple_that_its_bolt_holds_and_extends_does_not_time_out(
    patient_acker: Acker, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, watcher, looks = Shared[tuple[OutputCollector, Tuple]](), Watcher(), list[int]()
    overdue = OwnTimeouts.overdue

    def look(timeouts: OwnTimeouts, pending: Set[int], alive: Set[int]) -> list[int]:
        looks.append(len(pending))
        return overdue(timeouts, pending, alive)

    monkeypatch.setattr(OwnTimeouts, "overdue", look)

    def hold(collector: OutputCollector, tup: Tuple) -> None:
        held.append((collector, tup))

    with LocalRunner(hasty(Does(hold), [7]), patient_acker, observer=watcher) as runner:
        wait_until(lambda: held)
        [(collector, tup)] = held
        done = threading.Event()

        def extend() -> None:
            while not done.wait(TIMEOUT_MS / 1000 / 10):
                assert collector.extend(tup) == 1

        extending = threading.Thread(target=extend)
        extending.start()
        wait_until(lambda: len(looks) > 5 * EXTENDS_PER_TIMEOUT)
        done.set()
        extending.join()
        collector.ack(tup)
        assert runner.wait_until_idle(timeout_s=60)
    assert (list(watcher.completed), watcher.failed) == ([0], [])


def test_what_an_earlier_run_left_is_tried_again_after_the_timeout_of_the_topology_which_is_no_attempt() -> None:
    watcher = Watcher()
    options = DriverOptions(retries=ONE_ATTEMPT, observer=watcher)
    with simulated_acker(timeout_ms=600_000) as (acker, time):
        for _ in range(3):
            with LocalRunner(hasty(Does(lambda out, tup: None)), acker, **options):
                time.advance(TIMEOUT_MS / 2000)
        with LocalRunner(hasty(Relay()), acker, **options) as runner:
            assert runner.wait_until_idle()
        assert time.elapsed_s < 10
    assert (sorted(watcher.completed), watcher.failed, watcher.letters) == ([0, 1, 2, 3, 4], [], [])


def test_a_timeout_longer_than_that_of_the_namespace_is_refused(patient_acker: Acker) -> None:
    match = r"timeout_ms=600001 of topology 'job' is longer than the 600000 ms of namespace .*: choose less, or"
    with pytest.raises(BadTopology, match=match):
        LocalRunner(hasty(Relay(), timeout_ms=600_001), patient_acker)


@pytest.mark.parametrize("timeout_ms", [0, -1, 2.5, True, "1000"])
def test_a_timeout_that_is_no_time_is_refused(timeout_ms: Any) -> None:
    with pytest.raises(BadTopology, match="timeout_ms of 'job' must be a whole number of ms from 1, not"):
        TopologyBuilder("job", timeout_ms=timeout_ms)


def test_a_run_waits_for_a_bolt_that_hangs_no_longer_than_its_topology_allows() -> None:
    def hang(collector: OutputCollector, tup: Tuple) -> None:
        time.sleep(math.inf)

    with simulated_acker(timeout_ms=600_000) as (acker, time):
        runner = LocalRunner(hasty(Does(hang), [1]), acker).start()
        time.wait()
        assert not runner.stop()
        assert time.elapsed_s == TIMEOUT_MS / 1000


def test_with_tracking_off_there_is_nothing_to_time_out() -> None:
    note = Note()
    with LocalRunner(hasty(note), None) as runner:
        assert runner.wait_until_idle(timeout_s=30)
    assert note.values == [0, 1, 2, 3, 4]


def test_what_is_acked_does_not_time_out_because_its_ack_has_not_been_sent(
    patient_acker: Acker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "FLUSH_EVERY_S", 600)
    watcher = Watcher()

    def work_until_the_other_is_over(collector: OutputCollector, tup: Tuple) -> None:
        while tup["value"] == 1 and not (watcher.completed or watcher.failed):
            collector.extend(tup)
        collector.ack(tup)

    topology = hasty(Does(work_until_the_other_is_over), [0, 1])
    with LocalRunner(topology, patient_acker, observer=watcher) as runner:
        assert runner.wait_until_idle(timeout_s=60)
    assert (sorted(watcher.completed), watcher.failed) == ([0, 1], [])
