"""Healthy work never dies: what waits in a runner is kept alive, however slow its bolts are."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from itertools import count
from math import inf
from typing import Any

import pytest

from redis_acker import Acker, BasicBolt, LocalRunner, Message, OutputCollector, Tuple
from redis_acker.components.component import ComponentCounters
from redis_acker.driver import driver
from redis_acker.errors import ServerUnavailable
from redis_acker.testing import SimulatedTime, simulated_acker
from tests.backends import Servers, make_backend
from tests.components.store import Store
from tests.topology.parts import NO_PAUSE, ONE_ATTEMPT, Does, ListSpout, Note, Relay, Watcher, topology
from tests.waiting import wait_until

TIMEOUT_MS = 1_000


@pytest.fixture
def acker(servers: Servers, namespace: str) -> Iterator[Acker]:
    """A namespace on the server's own clock, with a short timeout."""
    backend = make_backend("redis-7.0", servers)
    with Acker(backend.target, namespace=namespace, timeout_ms=TIMEOUT_MS) as found:
        yield found
    backend.delete_keys(namespace)


class Slow(BasicBolt):
    """Takes a while for each tuple, as a bolt that calls another service."""

    fields = ("value",)

    def __init__(self, *takes_ms: int) -> None:
        self._takes_ms = takes_ms

    def process(self, tup: Tuple, emit: Callable[..., None]) -> None:
        threading.Event().wait(self._takes_ms[tup["value"] % len(self._takes_ms)] / 1000)
        emit(tup["value"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("messages", "takes_ms", "max_pending"),
    [(200, [50], 10_000), (60, [1, 20, 400], 10_000), (60, [1, 20, 400], 3), (11, [TIMEOUT_MS], 10_000)],
    ids=["ten timeouts in the queue", "a mix", "few at a time", "bolts as slow as the timeout"],
)
def test_each_message_is_worked_on_once_however_long_it_waits(
    acker: Acker, messages: int, takes_ms: list[int], max_pending: int
) -> None:
    watcher, work = Watcher(), topology(range(messages), Slow(*takes_ms), Relay())
    with LocalRunner(work, acker, observer=watcher, max_pending=max_pending) as runner:
        assert runner.wait_until_idle(timeout_s=120)
    counters = runner.counters()
    counters["source"].waited = 0
    assert counters == {
        "source": ComponentCounters(emitted=messages, acked=messages),
        "bolt0": ComponentCounters(executed=messages, emitted=messages, acked=messages),
        "bolt1": ComponentCounters(executed=messages, emitted=messages, acked=messages),
    }
    assert (watcher.failed, watcher.letters) == ([], [])


def test_a_bolt_that_hangs_is_named_and_another_copy_of_it_goes_on_with_its_queue(
    acker: Acker, caplog: pytest.LogCaptureFixture
) -> None:
    gate, watcher, prepared = threading.Event(), Watcher(), []

    class HangsOnce(BasicBolt):
        def prepare(self, context: object, collector: OutputCollector) -> None:
            prepared.append(self)

        def process(self, tup: Tuple, emit: Callable[..., None]) -> None:
            if tup["value"] == 3 and len(prepared) == 1:
                gate.wait(60)

    with LocalRunner(topology(range(20), HangsOnce()), acker, retries=NO_PAUSE, observer=watcher) as runner:
        assert runner.wait_until_idle(timeout_s=60)
        assert runner.bolts["bolt0"][0].bolt is prepared[1]
    gate.set()
    assert sorted(watcher.completed) == list(range(20))
    assert watcher.failed == [(3, "timeout")]
    assert len(prepared) == 2
    assert "Bolt bolt0/0 hangs: it has worked on Tuple((3,), from 'source', 1 roots) for" in caplog.text


def test_a_bolt_that_hangs_in_prepare_is_named_and_nothing_is_lost(
    acker: Acker, caplog: pytest.LogCaptureFixture
) -> None:
    gate, watcher = threading.Event(), Watcher()

    class NeverReady(Relay):
        def prepare(self, context: object, collector: OutputCollector) -> None:
            gate.wait(60)

    with LocalRunner(topology([1, 2], NeverReady()), acker, observer=watcher) as runner:
        wait_until(lambda: "Bolt bolt0/0 is in prepare() for" in caplog.text)
        gate.set()
        assert runner.wait_until_idle(timeout_s=60)
    assert (sorted(watcher.completed), watcher.failed) == ([0, 1], [])


def test_every_copy_that_hangs_in_prepare_is_logged_and_named_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    class SlowThenHangs(BasicBolt):
        def __init__(self, time: SimulatedTime) -> None:
            self._time = time

        def prepare(self, context: object, collector: OutputCollector) -> None:
            self._time.sleep(100)

        def process(self, tup: Tuple, emit: Callable[..., None]) -> None:
            self._time.sleep(inf)

    with simulated_acker() as (acker, time):
        runner = LocalRunner(topology([1], SlowThenHangs(time)), acker, retries=ONE_ATTEMPT).start()
        time.advance(200)
        assert not runner.stop(timeout_s=1)
        time.advance(100)
    assert caplog.text.count("Bolt bolt0/0 is in prepare() for") == 2
    assert "bolt0/0 does not end within 1 s and is left behind: it has been in prepare() for" in caplog.text


def test_a_copy_that_was_given_up_changes_nothing_when_it_comes_back(acker: Acker) -> None:
    gate, came_back, watcher, values = threading.Event(), threading.Event(), Watcher(), []

    def hang_once(collector: OutputCollector, tup: Tuple) -> None:
        values.append(tup["value"])
        if values == [0]:
            gate.wait(60)
            collector.emit([tup["value"]], anchors=tup)
            collector.ack(tup)
            came_back.set()
            raise SystemExit
        collector.ack(tup)

    note = Note()
    with LocalRunner(topology(range(3), Does(hang_once), note), acker, retries=NO_PAUSE, observer=watcher) as runner:
        assert runner.wait_until_idle(timeout_s=60)
        gate.set()
        assert came_back.wait(60)
        wait_until(lambda: runner.counters()["bolt1"].skipped == 1)
        assert runner.wait_until_idle(timeout_s=60)
    assert sorted(watcher.completed) == [0, 1, 2]
    assert note.values == []


def test_a_bolt_that_extends_its_tuple_is_not_taken_for_one_that_hangs(acker: Acker) -> None:
    prepared, watcher = [], Watcher()

    class Long(Does):
        def prepare(self, context: object, collector: OutputCollector) -> None:
            prepared.append(context)

    def work_on(collector: OutputCollector, tup: Tuple) -> None:
        for _ in range(12):
            threading.Event().wait(TIMEOUT_MS / 4000)
            assert collector.extend(tup) == 1
        collector.ack(tup)

    with LocalRunner(topology([1], Long(work_on)), acker, observer=watcher) as runner:
        assert runner.wait_until_idle(timeout_s=60)
    assert (len(prepared), watcher.failed, list(watcher.completed)) == (1, [], [0])


def test_a_tuple_whose_tree_is_over_is_not_worked_on(store: Store) -> None:
    gate, watcher, values = threading.Event(), Watcher(), []

    def wait_and_ack(collector: OutputCollector, tup: Tuple) -> None:
        values.append(tup["value"])
        gate.wait(30)
        collector.ack(tup)

    runner = LocalRunner(
        topology([1, 2, 3], Does(wait_and_ack)), store.acker, retries=ONE_ATTEMPT, observer=watcher, clock=store.clock
    )
    with runner:
        wait_until(lambda: values and store.acker.pending_count() == 3)
        store.acker.fail([one.root for one in store.acker.pending() if one.message_id == 1])
        wait_until(lambda: watcher.letters)
        gate.set()
        assert runner.wait_until_idle(timeout_s=30)
    assert values == [1, 3]
    assert runner.counters()["bolt0"] == ComponentCounters(executed=2, acked=2, skipped=1)


@pytest.mark.parametrize("is_tracked", [True, False], ids=["without ids", "tracking off"])
def test_queues_are_bounded_without_roots_too(store: Store, is_tracked: bool) -> None:
    gate, most = threading.Event(), []

    class Endless(ListSpout):
        def next_batch(self, limit: int) -> list[Message]:
            most.append(limit)
            return [Message([len(most)], id=None if is_tracked else len(most)) for _ in range(limit)]

    def wait(collector: OutputCollector, tup: Tuple) -> None:
        gate.wait(30)

    runner = LocalRunner(topology(Endless([]), Does(wait)), store.acker if is_tracked else None, max_pending=50)
    with runner:
        wait_until(lambda: runner.counters()["source"].waited > 3)
        assert 50 <= runner._delivered() <= 51
        gate.set()
        wait_until(lambda: runner.counters()["source"].emitted > 1000)


def test_a_tuple_that_times_out_in_a_queue_names_the_bolt_it_waits_for(store: Store) -> None:
    """As when the runner could not keep it alive: here time passes faster than it can see."""
    gate, watcher = threading.Event(), Watcher()

    def hang(collector: OutputCollector, tup: Tuple) -> None:
        gate.wait(30)

    runner = LocalRunner(
        topology(range(5), Does(hang)), store.acker, retries=ONE_ATTEMPT, observer=watcher, clock=store.clock
    )
    with runner:
        wait_until(lambda: runner.bolts["bolt0"][0].in_hands() and store.acker.pending_count() == 5)
        assert store.expire() == 5
        wait_until(lambda: len(watcher.letters) == 5)
        gate.set()
    causes = [letter.history[0] for letter in sorted(watcher.letters, key=lambda letter: int(letter.message_id))]
    assert [cause.component for cause in causes] == ["bolt0"] * 5
    assert causes[0].error.startswith("bolt0 has worked on it for ")
    assert all(cause.error.startswith("it has waited in the queue of bolt0 for ") for cause in causes[1:])


@pytest.mark.parametrize("way", ["stop", "exit"])
def test_a_run_ends_although_a_bolt_hangs_and_says_which(
    acker: Acker, caplog: pytest.LogCaptureFixture, way: str
) -> None:
    gate = threading.Event()

    def hang(collector: OutputCollector, tup: Tuple) -> None:
        gate.wait(60)

    runner = LocalRunner(topology([1], Does(hang)), acker).start()
    wait_until(runner.bolts["bolt0"][0].in_hands)
    if way == "stop":
        assert runner.stop(timeout_s=0.1) is False
    else:
        runner.__exit__(None)
    gate.set()
    assert "bolt0/0 does not end within" in caplog.text
    assert "is left behind: it has worked on Tuple((1,), from 'source', 1 roots) for" in caplog.text
    assert acker.pending_count() == 1


def test_what_stop_has_left_behind_is_not_waited_for_again() -> None:
    with simulated_acker() as (acker, time):
        with LocalRunner(topology([1], Does(lambda collector, tup: time.sleep(inf))), acker) as runner:
            time.wait()
            assert runner.stop(timeout_s=1) is False
        assert time.elapsed_s == 1


def test_acks_that_could_not_be_sent_are_sent_though_nothing_else_happens(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    send, tries = store.acker.ack, count(1)

    def fail_once(*args: Any, **options: Any) -> Any:
        if next(tries) == 1:
            raise ServerUnavailable("It is away for a moment.")
        return send(*args, **options)

    monkeypatch.setattr(store.acker, "ack", fail_once)
    with LocalRunner(topology([1], Relay()), store.acker) as runner:
        assert runner.wait_until_idle(timeout_s=30)
    assert next(tries) == 3


def test_final_events_and_new_tuples_wake_those_who_wait_for_them(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each message is handed out when the one before is complete, and nobody looks for it in between."""
    monkeypatch.setattr(driver, "SHORTEST_PAUSE_S", 3600.0)
    monkeypatch.setattr(driver, "LONGEST_PAUSE_S", 3600.0)
    spout = OneByOne()
    with LocalRunner(topology(spout, Relay(), Relay()), store.acker):
        wait_until(lambda: spout.told == [("ack", number) for number in range(20)])


class OneByOne(ListSpout):
    def __init__(self) -> None:
        super().__init__([])

    def __deepcopy__(self, memo: object) -> OneByOne:
        return self

    def next_batch(self, limit: int) -> list[Message]:
        self.asked = getattr(self, "asked", 0)
        if self.asked > len(self.told) or self.asked == 20:
            return []
        self.asked += 1
        return [Message([self.asked], id=self.asked - 1)]
