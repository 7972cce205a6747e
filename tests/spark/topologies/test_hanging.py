"""A bolt that hangs on Spark is found and named, and costs nobody else an attempt; one that is slow costs nothing."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Callable

import pytest

from redis_acker import Anchors, BasicBolt, Message, RetryPolicy, Tuple
from spark_integration.topologies import notes as hand_notes
from spark_integration.topologies.lookout import Lookout
from tests.spark.topologies.conftest import Bench
from tests.spark.topologies.parts import Note, Notebook, Relay, chain
from tests.topology.parts import ListSpout
from tests.waiting import wait_until

ONCE = RetryPolicy(max_attempts=1)


@pytest.fixture
def timeout_ms() -> int:
    return 2_000


class Hangs(BasicBolt):
    """Never comes back from some values, the first times it gets them."""

    fields = ("value",)

    def __init__(self, notebook: Notebook, values: set[int], times: int = 1) -> None:
        self.notebook, self.values, self.times = notebook, values, times

    def process(self, tup: Tuple, emit: Callable[..., None]) -> None:
        if tup["value"] in self.values and self.notebook.count(f"hang {tup['value']}") <= self.times:
            threading.Event().wait()
        emit(tup["value"])


@pytest.mark.parametrize("level", [0, 1])
def test_a_tuple_that_a_bolt_hangs_on_times_out_and_names_it_and_the_others_use_up_no_attempt(
    bench: Bench, caplog: pytest.LogCaptureFixture, level: int
) -> None:
    bolts = [Relay(), Relay(), Note(bench.notebook)]
    bolts[level] = Hangs(bench.notebook, {7}, times=99)
    runner = bench.run(chain(range(20), *bolts), retries=ONCE)

    [letter] = bench.letters()
    assert sorted(map(int, bench.completed)) == [one for one in range(20) if one != 7]
    assert bench.books() == (19, 0, 1, 0)
    [attempt] = letter.history
    assert (letter.message_id, attempt.reason, attempt.component) == (7, "timeout", f"bolt{level}")
    found = re.fullmatch(rf"bolt{level} has worked on it for (\d+\.\d) s and has not come back", attempt.error)
    assert found
    assert float(found[1]) >= 2
    assert f"Bolt bolt{level} hangs on Tuple((7,)" in caplog.text
    assert runner.counters()["source"].failed == 1


def test_who_asks_about_a_tuple_that_was_given_up_a_moment_ago_is_told(bench: Bench) -> None:
    note = hand_notes.Note("given up", "00", [7], "bolt0", "Tuple((7,))", int(1000 * time.time()))
    hand_notes.Notes(bench.acker, "run").put("0", note)
    lookout = Lookout(bench.acker, "run")

    assert lookout.causes([7, 8])[7].component == "bolt0"
    lookout.end()


def test_of_several_bolts_that_have_a_message_the_one_is_named_that_has_had_it_for_longest(bench: Bench) -> None:
    notes, now_ms = hand_notes.Notes(bench.acker, "run"), int(1000 * time.time())
    put = [
        hand_notes.Note("long", "01", [7], "first", "it", now_ms - 3_000),
        hand_notes.Note("long", "02", [7, 8], "second", "it", now_ms - 2_000),
        hand_notes.Note("given up", "03", [8], "third", "it", now_ms - 2_500),
        hand_notes.Note("long", "04", [8], "fourth", "it", now_ms - 5_000),
    ]
    for place, note in enumerate(put):
        notes.put(str(place), note)
    lookout = Lookout(bench.acker, "run")

    assert [lookout.causes([7, 8])[root].component for root in (7, 8)] == ["first", "third"]
    lookout.end()


@pytest.mark.full
@pytest.mark.parametrize("level", [0, 1])
def test_more_hangs_than_spark_retries_do_not_cost_others_an_attempt(bench: Bench, level: int) -> None:
    """The job fails and is run again without what hung; what was acked by then still counts."""
    hung = {1, 2, 3, 6, 9, 10}
    bolts = [Relay(), Relay(), Note(bench.notebook)]
    bolts[level] = Hangs(bench.notebook, hung)
    bench.run(chain(range(12), *bolts), retries=RetryPolicy(max_attempts=2))

    assert sorted(map(int, bench.completed)) == list(range(12))
    # What the other task had in its hands when the job failed goes on, and does not hang a second time.
    assert bench.books() in [(12, 0, failed, 0) for failed in (len(hung) - 1, len(hung))]
    assert {note[2] for note in bench.notebook.read()} == set(range(12))


@pytest.mark.full
def test_a_bolt_that_hangs_on_a_tuple_in_no_tree_is_found_too(bench: Bench) -> None:
    class Loose(ListSpout):
        def next_batch(self, limit: int) -> list[Message]:
            values, self.values = getattr(self, "values", [1, 2, 3]), list[int]()
            return [Message([value]) for value in values]

    runner = bench.runner(chain(Loose([]), Hangs(bench.notebook, {2}, times=99), Note(bench.notebook)))
    with runner:
        wait_until(lambda: len({note[2] for note in bench.notebook.read()}) == 2, timeout_s=60)
        assert runner.wait_until_idle(timeout_s=60)
    assert {note[2] for note in bench.notebook.read()} == {1, 3}


def test_stop_says_what_the_job_in_work_hangs_on(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    runner = bench.runner(chain([1], Hangs(bench.notebook, {1}, times=99))).start()
    wait_until(lambda: runner._lookout is not None and runner._lookout.longest(), timeout_s=60)
    assert not runner.stop(timeout_s=0.1)
    assert runner.stop()  # without a rotator it is found a little later
    assert re.search(r"micro-batches does not end within 0.1 s .*bolt0 has worked on it for \d", caplog.text)


def test_what_a_bolt_has_had_for_long_is_kept_alive_no_more(bench: Bench) -> None:
    runner = bench.runner(chain([1], Relay()))
    [queue, _] = runner._gatherer.queues["bolt0"]
    for root in (1, 2, 3, 4):
        queue.put(Tuple([root], anchors=Anchors({root: 7}), component="source"))
    notes = hand_notes.Notes(bench.acker, runner._plan.run.hex())
    for root, state in enumerate(("begun", "long", "given up"), start=1):
        notes.put(state, hand_notes.Note(state, f"{root:02x}", [root], "bolt0", "a tuple", 0))  # type: ignore[arg-type]
    try:
        assert runner._roots_in_work(2.0).tolist() == [1, 4]
        assert {root: cause.component for root, cause in runner._holders([2, 3, 4]).items()} == {2: "bolt0", 3: "bolt0"}
    finally:
        notes.clear()


class Sleeps(BasicBolt):
    """Takes as long as the value says, and notes it."""

    fields = ("value",)

    def __init__(self, notebook: Notebook) -> None:
        self.notebook = notebook

    def process(self, tup: Tuple, emit: Callable[..., None]) -> None:
        number, seconds = tup["value"].split()
        time.sleep(float(seconds))
        self.notebook.write(int(number))
        emit(tup["value"])


@pytest.mark.full
@pytest.mark.parametrize("max_pending", [10, 10_000])
def test_slow_bolts_work_on_each_message_once_however_long_it_waits(bench: Bench, max_pending: int) -> None:
    """Bolts of 1 ms to 2 s at a timeout of 2 s, and the last messages wait more than ten timeouts."""
    times_s = [0.001, 0.01, 0.05, 2.0, 0.3, 1.1, 0.001, 1.6, 2.0, 0.7] * 6
    messages = [f"{number} {seconds}" for number, seconds in enumerate(times_s)]
    with bench.runner(chain(messages, Sleeps(bench.notebook)), max_pending=max_pending) as runner:
        assert runner.wait_until_idle(timeout_s=150)

    executions = Counter(note[0] for note in bench.notebook.read())
    assert executions == dict.fromkeys(range(len(times_s)), 1)
    assert bench.books() == (len(times_s), 0, 0, 0)
    assert runner.counters()["bolt0"].executed == len(times_s)
