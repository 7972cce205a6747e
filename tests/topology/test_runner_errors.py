"""Errors that belong to no tuple end the run: the caller hears of them once, and every thread ends."""

from __future__ import annotations

import logging
import math
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from redis_acker import (
    BasicBolt,
    Bolt,
    LocalRunner,
    Message,
    OutputCollector,
    Spout,
    TaskContext,
    Topology,
    TopologyBuilder,
    Tuple,
)
from redis_acker.errors import AckerError, BadInput, BadTopology, SpoutTaken
from redis_acker.spouts.iterable import IterableSpout
from tests.components.store import Store
from tests.topology.parts import ONE_ATTEMPT, Does, ListSpout, Note, Relay, run, topology
from tests.unprintable import Unprintable
from tests.waiting import wait_until


class Broken(Exception):
    """What a component of a test raises."""


class BrokenSpout(IterableSpout):
    """Raises in one of its methods."""

    def __init__(self, where: str) -> None:
        super().__init__([1, 2, 3])
        self._where = where

    def _break(self, where: str) -> None:
        if where == self._where:
            raise Broken(f"in {where}")

    def open(self, context: TaskContext) -> None:
        self._break("open")
        super().open(context)

    def next_batch(self, limit: int) -> list[Message]:
        self._break("next_batch")
        return super().next_batch(limit)

    def ack(self, message_id: object) -> None:
        self._break("ack")

    def commit(self) -> None:
        self._break("commit")


class BrokenBolt(Relay):
    """Raises where no tuple can be failed for it."""

    def __init__(self, where: str) -> None:
        self._where = where

    def prepare(self, context: TaskContext, collector: OutputCollector) -> None:
        super().prepare(context, collector)
        if self._where == "prepare":
            raise Broken("in prepare")

    def process(self, tup: Tuple, emit: Callable[..., None]) -> None:
        if self._where == "exit":
            raise SystemExit("in process")

    def cleanup(self) -> None:
        if self._where == "cleanup":
            raise Broken("in cleanup")


@pytest.fixture(autouse=True)
def threads_end() -> Iterator[None]:
    """Whatever happens, no thread of a runner is left."""
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


def wait_for_error(runner: LocalRunner) -> BaseException:
    """The error that has ended a run."""
    wait_until(runner._threads.stop.is_set, 30)
    with pytest.raises((Broken, SystemExit, BadInput, SpoutTaken)) as caught:
        runner.wait_until_idle(timeout_s=30)
    return caught.value


@pytest.mark.parametrize("where", ["open", "next_batch", "ack", "commit"])
def test_what_a_spout_raises_reaches_the_caller_once(
    store: Store, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    runner = LocalRunner(topology(BrokenSpout(where), Relay()), store.acker).start()
    assert str(wait_for_error(runner)) == f"in {where}"
    assert runner.wait_until_idle(timeout_s=30) is False
    runner.stop()
    [record] = [one for one in caplog.records if one.name == "redis_acker.topology.threads"]
    assert record.getMessage().startswith("job/source/0 ended with an error, and the run with it.\nTraceback")
    assert record.getMessage().endswith(f"Broken: in {where}")


@pytest.mark.usefixtures("strict_log")
def test_an_error_that_cannot_be_printed_ends_the_run_and_reaches_the_caller(store: Store) -> None:
    class NeverReady(Bolt):
        def prepare(self, context: TaskContext, collector: OutputCollector) -> None:
            raise Unprintable

    runner = LocalRunner(topology([1], NeverReady()), store.acker).start()
    with pytest.raises(Unprintable):
        runner.wait_until_idle(timeout_s=30)
    runner.stop()


def test_a_bolt_whose_prepare_raises_ends_the_run(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    runner = LocalRunner(topology([1], Relay(), BrokenBolt("prepare")), store.acker).start()
    assert str(wait_for_error(runner)) == "in prepare"
    runner.stop()
    assert "bolt1/0 ended with an error, and the run with it." in caplog.text


def test_several_tasks_that_break_are_all_logged_and_one_is_raised(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    together = threading.Barrier(3)

    class BreaksTogether(Bolt):
        def prepare(self, context: TaskContext, collector: OutputCollector) -> None:
            together.wait(30)
            raise Broken(f"task {context.task}")

    builder = TopologyBuilder("job")
    builder.spout("source", IterableSpout([1]))
    builder.bolt("three", BreaksTogether(), parallelism=3).shuffle("source")
    runner = LocalRunner(builder.build(), store.acker).start()
    wait_for_error(runner)
    runner.stop()
    texts = [one.getMessage() for one in caplog.records if one.name == "redis_acker.topology.threads"]
    told = sorted(text.splitlines()[0] for text in texts)
    assert told == [f"three/{task} ended with an error, and the run with it." for task in range(3)]


def test_a_bolt_that_exits_the_program_ends_the_run(store: Store) -> None:
    runner = LocalRunner(topology([1], BrokenBolt("exit")), store.acker, retries=ONE_ATTEMPT).start()
    assert isinstance(wait_for_error(runner), SystemExit)
    runner.stop()


def test_a_cleanup_that_raises_loses_no_acks(store: Store) -> None:
    gate = threading.Event()

    class AcksLast(Bolt):
        def execute(self, tup: Tuple) -> None:
            self.tup = tup
            gate.set()

        def cleanup(self) -> None:
            self.collector.ack(self.tup)
            raise Broken("in cleanup")

    runner = LocalRunner(topology([1], AcksLast()), store.acker).start()
    assert gate.wait(30)
    with pytest.raises(Broken, match="in cleanup"):
        runner.stop()
    runner.stop()
    assert store.acker.pending_count() == 0


def test_a_driver_that_cannot_get_its_lease_says_who_has_it(store: Store) -> None:
    work = topology([1], Does(lambda collector, tup: collector.ack(tup)))
    with LocalRunner(work, store.acker) as first:
        assert first.wait_until_idle(timeout_s=30)
        with pytest.raises(SpoutTaken, match=r"Spout 'job/source/0' is driven by .* pid \d+"):
            run(work, store)
        assert first.wait_until_idle(timeout_s=30)
    run(work, store)


def test_an_error_ends_a_with_block_that_does_not_wait(store: Store) -> None:
    with (
        pytest.raises(Broken, match="in next_batch"),
        LocalRunner(topology(BrokenSpout("next_batch"), Relay()), store.acker) as runner,
    ):
        wait_until(runner._threads.stop.is_set)


def test_the_error_of_a_with_block_is_not_replaced_but_the_other_is_logged(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    def wait_and_raise(runner: LocalRunner) -> None:
        wait_until(runner._threads.stop.is_set)
        raise KeyError("mine")

    with (
        pytest.raises(KeyError, match="mine"),
        LocalRunner(topology(BrokenSpout("next_batch"), Relay()), store.acker) as runner,
    ):
        wait_and_raise(runner)
    assert "in next_batch" in caplog.text


def test_the_error_that_waiting_raised_leaves_the_with_block_as_it_is(store: Store) -> None:
    with pytest.raises(Broken) as caught, LocalRunner(topology(BrokenSpout("open"), Relay()), store.acker) as runner:
        runner.wait_until_idle(timeout_s=30)
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None


class Hands(Spout):
    """Hands out one batch."""

    fields = ("value",)

    def __init__(self, *messages: Message) -> None:
        self._messages: Iterable[Message] = messages

    def next_batch(self, limit: int) -> Iterable[Message]:
        batch, self._messages = self._messages, ()
        return batch


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (Message([1, 2], id="a"), "'source' emits 2 values to stream 'default', which has fields"),
        (Message([1], id="a", stream="odd"), "'source' emits to stream 'odd', which it does not declare"),
        (Message("x", id="a"), "'source' emits 'x', which is not a list of values"),
    ],
    ids=["too many values", "undeclared stream", "a text"],
)
def test_a_spout_that_emits_wrongly_ends_the_run(store: Store, message: Message, text: str) -> None:
    runner = LocalRunner(topology(Hands(message), Relay()), store.acker).start()
    assert text in str(wait_for_error(runner))
    runner.stop()


def test_a_component_that_cannot_be_copied_is_named(store: Store) -> None:
    class HasLock(BasicBolt):
        def __init__(self) -> None:
            self.lock = threading.Lock()

    with pytest.raises(BadTopology, match=r"'bolt1' cannot be copied for its tasks .*: open connections, files and"):
        LocalRunner(topology([1], Relay(), HasLock()), store.acker)


def test_a_runner_runs_once(store: Store) -> None:
    runner = run(topology([1], Relay()), store)
    with pytest.raises(BadInput, match="a runner runs once: make another"):
        runner.start()


def test_the_same_topology_may_run_again(store: Store) -> None:
    note = Note()
    work: Topology = topology([1, 2], note)
    for _ in range(2):
        run(work, store)
    assert sorted(note.values) == [1, 1, 2, 2]


def test_a_runner_that_is_stopped_early_leaves_its_roots_pending(store: Store) -> None:
    def forget(collector: OutputCollector, tup: Tuple) -> None:
        """Neither acks nor fails."""

    runner = LocalRunner(topology([1, 2], Does(forget)), store.acker).start()
    wait_until(lambda: runner.counters()["bolt0"].executed == 2)
    runner.stop()
    assert store.acker.pending_count() == 2
    assert runner.wait_until_idle(timeout_s=30) is False


def test_waiting_gives_up_after_a_while(store: Store) -> None:
    with LocalRunner(topology(ListSpout([Message([1], id=1)]), Does(lambda c, t: None)), store.acker) as runner:
        wait_until(lambda: store.acker.pending_count() == 1)
        assert runner.wait_until_idle(timeout_s=0) is False


def test_waiting_for_a_runner_that_was_not_started_is_refused() -> None:
    with pytest.raises(BadInput, match="This runner was not started, so it never becomes idle"):
        LocalRunner(topology([1], Relay()), None).wait_until_idle()


def test_threads_are_named_after_what_they_run(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with LocalRunner(topology([1], Relay()), store.acker):
        names = {thread.name for thread in threading.enumerate()}
    assert {"bolt0/0", "job/source/0", "rotator", "flush"} <= names


@pytest.mark.parametrize("made", [topology([1]), Topology("no spouts", {})], ids=["a spout", "no spouts"])
def test_a_misspelt_option_is_refused_by_its_name(made: Topology) -> None:
    with pytest.raises(TypeError, match=r"LocalRunner\(\) got an unexpected keyword argument 'max_pendin'"):
        LocalRunner(made, None, max_pendin=5)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"max_pending": "10"}, "max_pending must be a whole number from 1, not '10'"),
        ({"max_pending": 2.5}, "max_pending must be a whole number from 1, not 2.5"),
        ({"max_pending": True}, "max_pending must be a whole number from 1, not True"),
        ({"max_pending": None}, "max_pending must be a whole number from 1, not None"),
        ({"lease_ms": 0}, "lease_ms must be a whole number from 1, not 0"),
        ({"own_timeout_ms": -1}, "own_timeout_ms must be a whole number from 1, not -1"),
        ({"retries": 3}, "retries is a RetryPolicy and observer an Observer, not 3 and None"),
        ({"observer": "me"}, "retries is a RetryPolicy and observer an Observer, not None and 'me'"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused_before_anything_starts(options: Any, text: str) -> None:
    with pytest.raises(BadInput, match=re.escape(text)):
        LocalRunner(topology([1]), None, **options)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ((TopologyBuilder("job"), None), "A runner runs what build() of a TopologyBuilder returns, not <redis_acker."),
        ((topology([1]), "redis://localhost"), "is an Acker, or None to switch tracking off, not 'redis://localhost'."),
    ],
    ids=["a builder", "a URL"],
)
def test_what_no_runner_can_work_with_is_refused_before_anything_is_made_of_it(parts: Any, message: str) -> None:
    with pytest.raises(AckerError, match=re.escape(message)):
        LocalRunner(*parts)


@pytest.mark.parametrize("timeout_s", ["1", -1, math.nan, True])
def test_a_time_to_wait_that_is_none_is_refused_and_the_run_goes_on(timeout_s: Any) -> None:
    note = Note()
    with LocalRunner(topology([1], note), None) as runner:
        for wait in (runner.stop, runner.wait_until_idle):
            with pytest.raises(BadInput, match=f"timeout_s is a number of seconds, 0 or more, not {timeout_s!r}."):
                wait(timeout_s=timeout_s)
        assert runner.wait_until_idle(timeout_s=30)
    assert note.values == [1]
