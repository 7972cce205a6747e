"""Emits messages: as roots if they are tracked, otherwise as they are."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any

import numpy as np

from redis_acker.components.component import Router
from redis_acker.components.spout import Message
from redis_acker.components.tracing import MessageTrace, find_tracer
from redis_acker.components.tuples import NO_ANCHORS, Anchors
from redis_acker.driver.deaths import Flight, Trials
from redis_acker.driver.finishing import Finisher
from redis_acker.driver.intake import Intake
from redis_acker.driver.life import Life, Messages, State
from redis_acker.driver.observer import Reporter
from redis_acker.driver.telling import Teller
from redis_acker.errors import FailedTuple, TooLate, text_of
from redis_acker.store.acker import Acker
from redis_acker.store.ids import U64Array, indexes_of, new_edges
from redis_acker.store.lease import Lease
from redis_acker.store.packed import split_anchors

STOCKED_BLOCKS = 64
"""Blocks of roots that a driver allocates at once. A batch that fits into one block takes the next of them; without
them, a spout with few messages at a time would ask the store for roots as often as for anything else."""


@dataclass(frozen=True)
class _UnansweredInit:
    """The messages that are EMITTING, and the init that makes them pending. It is sent until it is answered."""

    since_ms: int
    lives: list[Life]
    targets: list[list[Any]]
    """For each message the tasks that get it, at least one."""
    roots: U64Array
    edges: U64Array
    """One for each task of each message."""

    def ack_vals(self) -> U64Array:
        """For each message the XOR of its edges."""
        ends = np.cumsum([len(targets) for targets in self.targets])
        return np.bitwise_xor.reduceat(self.edges, np.concatenate(([0], ends[:-1])))

    def deliveries(self, traces: Iterable[bytes]) -> Iterator[tuple[Any, Message, Anchors]]:
        """traces: for each message the context of its trace, if it has one."""
        edges = iter(self.edges.tolist())
        for life, targets, trace in zip(self.lives, self.targets, traces, strict=False):
            assert life.message is not None
            for target in targets:
                drawn = {life.root: next(edges)}
                yield target, life.message, Anchors.traced(drawn, trace) if trace else Anchors.trusted(drawn)


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
        flight: Flight | None,
        trials: Trials,
        *,
        name: str,
        own_timeout_ms: int,
        clock: Callable[[], int],
    ) -> None:
        """acker, finisher and flight: None if tracking is off."""
        self._intake, self._acker, self._router, self._messages = intake, acker, router, messages
        self._lease, self._teller, self._finisher, self._reporter = lease, teller, finisher, reporter
        self._flight, self._trials = flight, trials
        self._name, self._own_timeout_ms, self._clock = name, own_timeout_ms, clock
        self._batch: _UnansweredInit | None = None
        self._outbox: deque[tuple[Any, Message, Anchors]] = deque()
        """Deliveries, several for one message: it is PENDING or UNTRACKED by now, or has no id."""
        self._stock: list[U64Array] = []
        """Blocks of roots that have never been pending."""

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
        """Emits what is READY or loose, or only suspects while any are tried. Everything is checked before anything
        leaves. False if there was nothing."""
        messages = self._messages
        in_flight = messages.in_flight + len(messages.all(State.EMITTING))
        all_ready = list(messages.all(State.READY))
        ready = _of_one_kind(self._trials.admit(self, all_ready, in_flight))
        loose = [] if self._trials.is_on else self._intake.loose
        if not (loose or ready):
            return False
        routed = [self._routed(message) for message in loose]
        targets_of = [self._targets_of(life) for life in ready]
        tracked = [life for life, targets in zip(ready, targets_of, strict=True) if targets]
        if tracked:
            self._batch = self._allocate(tracked, [targets for targets in targets_of if targets])
        for life, targets in zip(ready, targets_of, strict=True):
            if targets is not None and not targets:
                self._emit_unheard(life)
        if len(ready) == len(all_ready):
            messages.move_all(State.READY, State.EMITTING)
        else:
            for life in tracked:
                messages.move(life, State.EMITTING)
        if loose:
            self._intake.loose = []
        for message, targets in routed:
            self._emit_loose(message, targets)
        self._resume()
        return True

    def _targets_of(self, life: Life) -> list[Any] | None:
        """The tasks that get a message. None if it is given up, because its values cannot be dealt out."""
        message = life.message
        assert message is not None
        try:
            return [] if message.error else self._router.targets(message.stream, message.values)
        except FailedTuple as error:
            assert self._finisher is not None
            self._finisher.give_up(life, _text_of(error))
            return None

    def _routed(self, message: Message) -> tuple[Message, list[Any]]:
        """The message, with an error if its values cannot be dealt out, and the tasks that get it."""
        try:
            return message, [] if message.error else self._router.targets(message.stream, message.values)
        except FailedTuple as error:
            return replace(message, error=_text_of(error)), []

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
        assert self._flight is not None
        roots = self._new_roots(self._acker, len(lives))
        self._flight.begin(roots, lives)
        for life, root in zip(lives, roots.tolist(), strict=True):
            life.root, life.attempt, life.is_adopted = root, life.next_attempt, False
        edges = new_edges(sum(map(len, targets_of)))
        return _UnansweredInit(self._clock(), lives, targets_of, roots, edges)

    def _begin_traces(self, lives: list[Life]) -> Iterable[bytes]:
        tracer = find_tracer()
        if not tracer:
            return repeat(b"")
        contexts = []
        for life in lives:
            if not life.trace:
                life.trace = MessageTrace(split_anchors(life.message.anchors)[1] if life.message else b"")
            contexts.append(life.trace.begin(tracer, self._name, life.id, life.root, life.attempt))
        return contexts

    def _new_roots(self, acker: Acker, count: int) -> U64Array:
        block_size = acker.settings.block_size
        if count > block_size:
            return acker.allocate(self._name, count)
        if not self._stock:
            roots = acker.allocate(self._name, STOCKED_BLOCKS * block_size)
            self._stock = np.split(roots, STOCKED_BLOCKS)[::-1]
        return self._stock.pop()[:count]

    def _send(self) -> bool:
        """Makes the batch pending, then delivers it. False if there is none."""
        if self._batch is None:
            return False
        assert self._acker is not None
        if self._clock() - self._batch.since_ms > self._acker.settings.timeout_ms / 2:
            # Too old: its roots may have timed out by now, and an init must not bring them back.
            self._abandon(self._acker, self._batch.roots)
            self._batch = self._allocate(self._batch.lives, self._batch.targets)
        batch = self._batch
        ids: list[Any] = [life.id for life in batch.lives]
        attempts = [life.attempt for life in batch.lives]
        self._lease.renew()
        try:
            self._acker.init(batch.roots, batch.ack_vals(), message_ids=ids, attempts=attempts, echo_ids=True)
        except TooLate:  # the server did not get to it for so long; some of it may be pending
            self._abandon(self._acker, batch.roots)
            self._batch = self._allocate(batch.lives, batch.targets)
            return True
        self._batch = None
        self._reporter.is_short_of_memory = False
        deadline_ms = self._clock() + self._own_timeout_ms
        for life in batch.lives:
            life.deadline_ms = deadline_ms
        self._messages.move_all(State.EMITTING, State.PENDING)
        self._outbox.extend(batch.deliveries(self._begin_traces(batch.lives)))
        self._reporter.counters.emitted += len(batch.lives)
        self._reporter.counters.replayed += sum(life.retry is not None for life in batch.lives)
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
        outbox, renew_lease, deliver = self._outbox, self._lease.renew, self._router.deliver
        while outbox:
            target, message, anchors = outbox[0]
            renew_lease()
            deliver(target, message.values, message.stream, anchors)
            outbox.popleft()


def _of_one_kind(lives: list[Life]) -> list[Life]:
    """Those with message ids of the same kind as the first. One init takes no others, and a retry book may have ids
    that its source does not hand out any more."""
    return [life for life in lives if type(life.id) is type(lives[0].id)]


def _text_of(error: FailedTuple) -> str:
    return text_of(error, with_type=False) or type(error).__name__
