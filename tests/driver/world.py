"""What is around a driver and survives it: the store, the clock, the tasks that work on tuples, the disk of the source.

The plan of a message says what the task does with it:

complete   acks it
fail once  fails the first attempt that it sees, acks the next
fail       fails every attempt
fatal      fails it for good
lose once  forgets about the first attempt that it sees, acks the next
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from redis_acker import Acker, Anchors, RetryPolicy, Rotator, SpoutDriver
from redis_acker.retries.book import DeadLetter
from redis_acker.retries.dead_letters import DeadLetters
from redis_acker.store.message_ids import MessageId
from tests.clock import Clock
from tests.driver.source import Disk, DurableSpout

SPOUT = "orders"
TIMEOUT_MS = 30_000
TICK_MS = 15_000
"""Time between two rotations with 3 buckets."""

ROUND_MS = 15_000
"""Time that passes in a round of World.live()."""

MANY_ROUNDS = 200

LASTING = {"meta", "counters", "spouts", "sequences", "completions", "failures", "dead"}
"""Keys that a namespace keeps when nothing is pending."""

POLICY = RetryPolicy(max_attempts=3, first_ms=2_000, jitter=0)


@dataclass(frozen=True)
class Delivery:
    """A tuple that reached the task."""

    message_id: MessageId
    root: int
    edge: int
    attempt: int


@dataclass
class World:
    """Everything but the driver."""

    client: Any
    namespace: str
    plans: Mapping[MessageId, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    policy: RetryPolicy = POLICY
    target: Any = None
    """What ackers are pointed at, if it is not the client."""

    def __post_init__(self) -> None:
        self.clock = Clock()
        self.disk = Disk(self.plans)
        self.acker = self.new_acker()
        self.rotator = Rotator(self.acker)
        self.queue: list[Delivery] = []
        self.deliveries: list[Delivery] = []
        self.completed: set[MessageId] = set()
        self.mistakes: list[str] = []
        self._drivers = 0
        self.emitted_by: dict[tuple[MessageId, int], int] = {}
        """Message and attempt -> the driver, by its number, that was new when it came."""

    def new_acker(self) -> Acker:
        """An acker of its own for a driver, as each process has one."""
        settings = {"timeout_ms": TIMEOUT_MS, "block_size": 4, **self.settings}
        return Acker(self.target or self.client, namespace=self.namespace, clock=self.clock, **settings)

    def new_driver(self, acker: Acker | None = None, **options: Any) -> SpoutDriver:
        self._drivers += 1
        return SpoutDriver(
            options.pop("spout", None) or DurableSpout(self.disk),
            acker or self.new_acker(),
            options.pop("router", None) or Router(self),
            **{"name": SPOUT, "retries": self.policy, "clock": self.clock, **options},
        )

    # -- time ----------------------------------------------------------------------------------------------------

    def live(self, driver: SpoutDriver, *, rounds: int = MANY_ROUNDS) -> None:
        """Lets driver, task and rotator take turns until the source is settled."""
        for _ in range(rounds):
            if self.disk.is_done() and driver.is_idle():
                return
            driver.step()
            self.work()
            self.pass_time(ROUND_MS)
        assert rounds < MANY_ROUNDS, f"after {MANY_ROUNDS} rounds only {self.disk.settled} of {self.disk.plans}"

    def pass_time(self, ms: int) -> None:
        self.clock.advance(ms)
        self.rotator.once()

    def let_lease_run_out(self) -> None:
        self.client.delete(self.acker.shards.keys[0].lease(self.acker.spout_number(SPOUT)))

    # -- the task ------------------------------------------------------------------------------------------------

    def deliver(self, message_id: MessageId, anchors: Anchors) -> None:
        ((root, edge),) = anchors.items()
        attempt = self.acker.inspect(root).attempt or 0
        delivery = Delivery(message_id, root, edge, attempt)
        if message_id in self.disk.settled:
            self.mistakes.append(f"{delivery} comes after the source has committed {self.disk.settled[message_id]}")
        if message_id in self.completed:
            self.mistakes.append(f"{delivery} comes after its completion")
        latest = max((one.attempt for one in self.deliveries if one.message_id == message_id), default=0)
        # Neither the end of a driver nor the loss of the store is an attempt.
        is_left = self.emitted_by.get((message_id, attempt)) != self._drivers
        if attempt < latest or (attempt == latest and not is_left):
            self.mistakes.append(f"{delivery} has an attempt that was there before")
        self.emitted_by[message_id, attempt] = self._drivers
        self.deliveries.append(delivery)
        self.queue.append(delivery)

    def work(self) -> None:
        """The task works off its queue."""
        queue, self.queue = self.queue, []
        for one in queue:
            plan = self.disk.plans[one.message_id]
            seen = sum(one.message_id == other.message_id for other in self.deliveries)
            if plan == "fail" or (plan == "fail once" and seen == 1):
                self.acker.fail([one.root], component="task", error=f"attempt {one.attempt}")
            elif plan == "fatal":
                self.acker.fail([one.root], component="task", error="never", fatal=True)
            elif plan != "lose once" or seen > 1:
                self.complete(one)

    def complete(self, delivery: Delivery) -> None:
        if self.acker.ack([delivery.root], [delivery.edge]).completed:
            self.completed.add(delivery.message_id)

    # -- looking -------------------------------------------------------------------------------------------------

    def attempts_at(self, message_id: MessageId) -> list[int]:
        return [one.attempt for one in self.deliveries if one.message_id == message_id]

    def dead_letters(self) -> dict[MessageId, DeadLetter]:
        return {letter.message_id: letter for letter in DeadLetters(self.acker, spout=SPOUT)}

    def check(self) -> None:
        """Nothing is lost, nothing was done twice, nothing is left behind."""
        expected = {one: "dead" if plan in ("fail", "fatal") else "acked" for one, plan in self.disk.plans.items()}
        assert self.disk.mistakes == []
        assert self.mistakes == []
        assert self.disk.settled == expected
        self._check_letters({one for one, outcome in expected.items() if outcome == "dead"})
        self.check_leftovers()

    def _check_letters(self, dead: set[MessageId]) -> None:
        letters = self.dead_letters()
        assert letters.keys() == dead
        for message_id, letter in letters.items():
            attempts = [one.attempt for one in letter.history]
            assert attempts == list(range(1, len(attempts) + 1)), letter
            assert letter.fatal == (self.disk.plans[message_id] == "fatal")
            assert letter.fatal or len(attempts) == self.policy.max_attempts, letter

    def check_leftovers(self) -> None:
        """After the time that finished roots are remembered, only the lasting keys are there, the streams empty."""
        for _ in range(4):
            self.pass_time(TICK_MS)
        assert self.acker.pending_count() == 0
        keys = list(self.client.scan_iter(match=f"*{self.namespace}*", count=1000))
        names = {key.decode().partition("}:")[2].partition(":")[0] for key in keys}
        assert names <= LASTING
        for key in keys:
            if self.client.type(key) == b"stream":
                assert self.client.xlen(key) == 0
                assert [group["pending"] for group in self.client.xinfo_groups(key)] in ([0], [])


class Router:
    """Brings what the driver emits to the task of a world."""

    def __init__(self, world: World) -> None:
        self.world = world

    def targets(self, stream: str, values: Sequence[Any]) -> list[Any]:
        return ["task"]

    def deliver(self, target: Any, values: Sequence[Any], stream: str, anchors: Anchors) -> None:
        self.world.deliver(values[0], anchors)
