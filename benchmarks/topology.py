"""A topology in threads: tuples, messages and deaths per second, the time from emit to ack, and what it costs while
nothing happens."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from statistics import median, quantiles

from benchmarks.common import Report, Target
from redis_acker import Acker, BasicBolt, FailedTuple, LocalRunner, Message, Spout, Topology, TopologyBuilder, Tuple
from redis_acker.server.embedded import EmbeddedServer
from redis_acker.spouts.iterable import IterableSpout
from redis_acker.store.message_ids import MessageId
from redis_acker.store.transport import Command

ROUNDS = 5
MESSAGES = 50_000
BOLTS = 2
"""Bolts that each message passes, one tuple each."""

FEW_PENDING = {1: 910, 10: 9_810}
"""max_pending, and the messages per second to reach: ten times those of a runner that looks for work every 10 ms."""
MESSAGES_AT_ONE = 1_000
"""Messages for each that may be pending."""
ROUND_TRIPS = 3_000

DEATHS = 20_000

LATENCIES = 500
SLOW_MESSAGES = 200
SLOW_MS = 20
SLOW_TIMEOUT_MS = 1_000
"""Messages wait for a slow bolt for a multiple of this."""

IDLE_TASKS = 200
IDLE_S = 5.0


def measure(say: Callable[[str], None]) -> Report:
    """Everything, on one server."""
    with EmbeddedServer() as server, Acker(server.url, namespace="bench") as acker:
        report = Report("topology", {"server": server.version, "rounds": ROUNDS, "messages": MESSAGES})
        say("tuples per second, with and without acker ...")
        throughput(report, acker)
        say("messages per second with few pending ...")
        few_pending(report, acker)
        say("messages that all die ...")
        deaths(report, acker)
        say("from emit to ack ...")
        latency(report, acker)
        say(f"{IDLE_TASKS} tasks with nothing to do ...")
        report.add("idle_cpu", f"CPU while idle, {IDLE_TASKS} tasks, cores", idle_cpu(acker), Target("<=", 0.01))
        say(f"{SLOW_MESSAGES} messages for a bolt of {SLOW_MS} ms ...")
        with Acker(server.url, namespace="slow", timeout_ms=SLOW_TIMEOUT_MS) as slow:
            executions = executions_per_message(slow)
        report.add("executions_per_message", "executions per message, slow bolt", executions, Target("<=", 1.001))
    return report


class Relay(BasicBolt):
    """Sends on what it gets, after a while if it is slow."""

    fields = ("value",)

    def __init__(self, pause_s: float = 0.0) -> None:
        self._pause_s = pause_s

    def process(self, tup: Tuple, emit: Callable[..., None]) -> None:
        if self._pause_s:
            time.sleep(self._pause_s)
        emit(tup["value"])


class OneByOne(Spout):
    """Hands out a message when the one before is complete, and notes how long each took."""

    fields = ("value",)

    def __init__(self) -> None:
        self.latencies_ms: list[float] = []
        self._is_free = True

    def __deepcopy__(self, memo: object) -> OneByOne:
        return self

    def next_batch(self, limit: int) -> list[Message]:
        if not self._is_free or len(self.latencies_ms) == LATENCIES:
            return []
        self._is_free, self._since_s = False, time.perf_counter()
        return [Message([1], id=len(self.latencies_ms))]

    def ack(self, message_id: MessageId) -> None:
        self.latencies_ms.append(1000 * (time.perf_counter() - self._since_s))
        self._is_free = True


def throughput(report: Report, acker: Acker) -> None:
    """Medians over rounds, with and without acker in turns."""
    tracked, untracked = [], []
    for _ in range(ROUNDS):
        untracked.append(_tuples_per_s(None))
        tracked.append(_tuples_per_s(acker))
    ratios = [with_it / without for with_it, without in zip(tracked, untracked, strict=True)]
    report.add("tuples_per_s", "tuples/s", median(tracked), Target(">=", 100_000))
    report.add("tuples_per_s_without_acker", "tuples/s without acker", median(untracked))
    report.add("tuples_ratio", "tuples/s with / without acker", median(ratios), Target(">=", 0.6))


def _tuples_per_s(acker: Acker | None) -> float:
    with LocalRunner(_chain(IterableSpout(range(MESSAGES)), *(Relay() for _ in range(BOLTS))), acker) as runner:
        return BOLTS * _per_s(MESSAGES, runner)


def few_pending(report: Report, acker: Acker) -> None:
    """Here the time goes into round trips: of a message to the bolt, and of calls to the server. So they are measured
    beside bare calls, one after the other."""
    rates: dict[int, list[float]] = {max_pending: [] for max_pending in FEW_PENDING}
    trips = []
    for _ in range(ROUNDS):
        trips.append(_round_trips_per_s(acker))
        for max_pending, found in rates.items():
            messages = MESSAGES_AT_ONE * max_pending
            chain = _chain(IterableSpout(range(messages)), Relay())
            with LocalRunner(chain, acker, max_pending=max_pending) as runner:
                found.append(_per_s(messages, runner))
    for max_pending, target in FEW_PENDING.items():
        words = f"messages/s with max_pending={max_pending}"
        report.add(f"messages_per_s_at_{max_pending}", words, median(rates[max_pending]), Target(">=", target))
    report.add("round_trips_per_s", "bare calls to the server/s, one by one", median(trips))
    calls = [trip / rate for trip, rate in zip(trips, rates[1], strict=True)]
    report.add("message_in_round_trips", "a message alone takes as long as bare calls", median(calls))


def _round_trips_per_s(acker: Acker) -> float:
    start_s = time.perf_counter()
    for _ in range(ROUND_TRIPS):
        acker.shards.transport.run_one(Command(0, ("PING",)))
    return ROUND_TRIPS / (time.perf_counter() - start_s)


class Reject(BasicBolt):
    """Fails everything for good."""

    def process(self, tup: Tuple, emit: Callable[..., None]) -> None:
        raise FailedTuple("rejected", fatal=True)


def deaths(report: Report, acker: Acker) -> None:
    """Each message fails, and its dead letter is stored. The line in the log that each of them gets is left out."""
    log = logging.getLogger("redis_acker")
    level = log.level
    log.setLevel(logging.CRITICAL)
    rates = []
    for _ in range(ROUNDS):
        with LocalRunner(_chain(IterableSpout(range(DEATHS)), Reject()), acker) as runner:
            rates.append(_per_s(DEATHS, runner))
    log.setLevel(level)
    report.add("deaths_per_s", "messages/s that all die", median(rates), Target(">=", 25_000))


def _per_s(messages: int, runner: LocalRunner) -> float:
    start_s = time.perf_counter()
    runner.wait_until_idle()
    return messages / (time.perf_counter() - start_s)


def latency(report: Report, acker: Acker) -> None:
    """From next_batch() to ack() of the spout, through one bolt, one message at a time."""
    spout = OneByOne()
    with LocalRunner(_chain(spout, Relay()), acker) as runner:
        while len(spout.latencies_ms) < LATENCIES:
            runner.wait_until_idle()
    cuts = quantiles(spout.latencies_ms, n=100)
    report.add("ack_latency_ms_p50", "from emit to ack, ms, median", cuts[49], Target("<=", 3))
    report.add("ack_latency_ms_p99", "from emit to ack, ms, 99%", cuts[98])


def idle_cpu(acker: Acker) -> float:
    """CPU seconds of this process per second, with nothing to do."""
    with LocalRunner(_chain(IterableSpout([]), Relay(), parallelism=IDLE_TASKS), acker) as runner:
        runner.wait_until_idle()
        start_s, cpu_s = time.perf_counter(), time.process_time()
        time.sleep(IDLE_S)
        return (time.process_time() - cpu_s) / (time.perf_counter() - start_s)


def executions_per_message(acker: Acker) -> float:
    """How often a bolt works on a message that waits for it for several timeouts."""
    with LocalRunner(_chain(IterableSpout(range(SLOW_MESSAGES)), Relay(SLOW_MS / 1000)), acker) as runner:
        runner.wait_until_idle()
        return runner.counters()["bolt0"].executed / SLOW_MESSAGES


def _chain(spout: Spout, *bolts: BasicBolt, parallelism: int = 1) -> Topology:
    builder = TopologyBuilder("bench")
    builder.spout("source", spout)
    before = "source"
    for number, bolt in enumerate(bolts):
        builder.bolt(f"bolt{number}", bolt, parallelism=parallelism).shuffle(before)
        before = f"bolt{number}"
    return builder.build()
