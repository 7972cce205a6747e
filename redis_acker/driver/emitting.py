"""Emits messages: as roots if they are tracked, otherwise as they are."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from operator import xor
from typing import Any

from redis_acker.components.component import Router
from redis_acker.components.spout import Message
from redis_acker.components.tracing import MessageTrace, find_tracer
from redis_acker.components.tuples import NO_ANCHORS, Anchors, Edges
from redis_acker.driver.finishing import Finisher, Teller
from redis_acker.driver.intake import Intake
from redis_acker.driver.life import Life, Messages, State
from redis_acker.driver.observer import Reporter
from redis_acker.store.acker import Acker
from redis_acker.store.ids import U64Array, indexes_of
from redis_acker.store.lease import Lease


@dataclass(frozen=True)
class _UnansweredInit:
    """The messages that are EMITTING, and the init that makes them pending. It is sent until it is answered."""

    since_ms: int
    lives: list[Life]
    roots: U64Array
    edges: list[list[tuple[Any, int]]]
    """For each message the tasks that get it, and the edge to each."""


class Emitter:
    """Emits what the intake brings in.

    After an error, the next call picks up where it stopped: nothing that the source has handed out is dropped, since it
    would not hand it out again.
    """

    def __init__(
        self,
        intake: Intake,
        acker: Acker | None,
        router: Router,
        messages: Messages,
        lease: Lease,
        teller: Teller,
        finisher: Finisher | None,
        reporter: Reporter,
        *,
        name: str,
        own_timeout_ms: int,
        clock: Callable[[], int],
    ) -> None:
        """acker and finisher: None if tracking is off."""
        self._intake, self._acker, self._router, self._messages = intake, acker, router, messages
        self._lease, self._teller, self._finisher, self._reporter = lease, teller, finisher, reporter
        self._name, self._own_timeout_ms, self._clock = name, own_timeout_ms, clock
        self._batch: _UnansweredInit | None = None
        self._outbox: deque[tuple[Any, Message, Anchors]] = deque()
        """Deliveries, several for one message: it is PENDING or UNTRACKED by now, or has no id."""
        self._new_edge = Edges()

    def is_idle(self) -> bool:
        """Whether there is nothing to emit and every message is over. Other threads may ask."""
        return self._intake.is_idle() and not self._outbox and self._messages.is_idle()

    def emit(self, *, brings: bool = True) -> bool:
        """Emits as much as there is and max_pending allows. False if there was nothing. brings=False: the spout is
        paused, so only what is on its way out."""
        busy = self._resume()
        busy |= self._intake.bring() if brings else self._intake.hold()
        return self._emit_ready() or busy

    def _resume(self) -> bool:
        """Sends what is on its way out. False if no message became pending."""
        self._deliver()
        self._end_untracked()
        return self._send()

    # -- where they go -------------------------------------------------------------------------------------------

    def _emit_ready(self) -> bool:
        """Emits what is READY or loose. Everything is checked before anything leaves. False if there was nothing."""
        loose, ready = self._intake.loose, list(self._messages.all(State.READY))
        if not (loose or ready):
            return False
        loose_targets = [self._targets(message) for message in loose]
        targets_of = {life: self._targets(life.message) for life in ready}
        if tracked := [life for life in ready if targets_of[life]]:
            self._batch = self._allocate(tracked, [targets_of[life] for life in tracked])
        for life in ready:
            if targets_of[life]:
                self._messages.move(life, State.EMITTING)
            else:
                self._emit_unheard(life)
        self._intake.loose = []
        for message, targets in zip(loose, loose_targets, strict=True):
            self._emit_loose(message, targets)
        self._resume()
        return True

    def _targets(self, message: Message | None) -> list[Any]:
        assert message is not None
        return [] if message.error else self._router.targets(message.stream, message.values)

    def _emit_unheard(self, life: Life) -> None:
        """Deals with a message that goes to no task: nobody listens, or the source could not read it."""
        assert life.message is not None
        assert self._finisher is not None
        if life.message.error:
            self._finisher.give_up(life, life.message.error)
            return
        self._reporter.counters.emitted += 1
        life.is_dead = False
        self._messages.move(life, State.UNTRACKED)

    def _emit_loose(self, message: Message, targets: list[Any]) -> None:
        if message.error:
            self._reporter.unreadable(message)
        else:
            self._reporter.counters.emitted += 1
            self._outbox.extend((target, message, NO_ANCHORS) for target in targets)
        if message.id is not None and (life := self._messages.life_of(message.id)).state is None:
            life.message, life.is_dead = message, bool(message.error)
            self._messages.move(life, State.UNTRACKED)

    def _end_untracked(self) -> None:
        """Tells the source that untracked messages are done."""
        for life in list(self._messages.all(State.UNTRACKED)):
            self._teller.tell(life, is_dead=life.is_dead)
        self._teller.commit()

    # -- the batch -----------------------------------------------------------------------------------------------

    def _allocate(self, lives: list[Life], targets_of: list[list[Any]]) -> _UnansweredInit:
        assert self._acker is not None
        edges = [[(target, self._new_edge()) for target in targets] for targets in targets_of]
        roots = self._acker.allocate(self._name, len(lives))
        for life, root in zip(lives, roots.tolist(), strict=True):
            life.root, life.attempt, life.is_adopted = root, life.next_attempt, False
        return _UnansweredInit(self._clock(), lives, roots, edges)

    def _send(self) -> bool:
        """Makes the batch pending, then delivers it. False if there is none."""
        if self._batch is None:
            return False
        assert self._acker is not None
        if self._clock() - self._batch.since_ms > self._acker.settings.timeout_ms / 2:
            # Too old: its roots may have timed out by now, and an init must not bring them back.
            self._abandon(self._acker, self._batch.roots)
            targets_of = [[target for target, _ in edges] for edges in self._batch.edges]
            self._batch = self._allocate(self._batch.lives, targets_of)
        batch = self._batch
        ids: list[Any] = [life.id for life in batch.lives]
        ack_vals = [reduce(xor, (edge for _, edge in edges)) for edges in batch.edges]
        attempts = [life.attempt for life in batch.lives]
        self._lease.renew()
        self._acker.init(batch.roots, ack_vals, message_ids=ids, attempts=attempts, echo_ids=True)
        self._batch = None
        self._reporter.is_short_of_memory = False
        deadline_ms, tracer = self._clock() + self._own_timeout_ms, find_tracer()
        for life, edges in zip(batch.lives, batch.edges, strict=True):
            assert life.message is not None
            life.deadline_ms = deadline_ms
            self._messages.move(life, State.PENDING)
            trace = b""
            if tracer:
                life.trace = life.trace or MessageTrace()
                trace = life.trace.begin(tracer, self._name, life.id, life.root, life.attempt)
            for target, edge in edges:
                anchors = Anchors.traced({life.root: edge}, trace) if trace else Anchors.trusted({life.root: edge})
                self._outbox.append((target, life.message, anchors))
            self._reporter.counters.emitted += 1
            self._reporter.counters.replayed += life.attempt > 1
        self._deliver()
        return True

    def _abandon(self, acker: Acker, roots: U64Array) -> None:
        """Fails roots that became pending though the reply was lost: nobody works on them."""
        begins = roots[indexes_of(roots) == 0].tolist()
        for first, end in zip(begins, [*begins[1:], int(roots[-1]) + 1], strict=True):
            if acker.inspect(first).state == "pending":
                block = roots[(roots >= first) & (roots < end)]
                self._lease.renew()
                acker.fail(block, component=self._name, error="its init was answered too late")

    def _deliver(self) -> None:
        while self._outbox:
            target, message, anchors = self._outbox[0]
            self._lease.renew()
            self._router.deliver(target, message.values, message.stream, anchors)
            self._outbox.popleft()
