"""Drives a spout: emits its messages as roots, and tells it what became of them."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Collection

from redis_acker.clock import Clock, Signal
from redis_acker.components.component import Router, TaskContext
from redis_acker.components.spout import Spout
from redis_acker.driver.deaths import Flight, Trials
from redis_acker.driver.emitting import Emitter
from redis_acker.driver.finishing import Finisher
from redis_acker.driver.intake import Intake
from redis_acker.driver.life import Messages, State
from redis_acker.driver.observer import Observer, Reporter
from redis_acker.driver.options import DEFAULT_MAX_PENDING, OWN_TIMEOUT_FACTOR, check_options, clock_of
from redis_acker.driver.pausing import Switch
from redis_acker.driver.requests import Requests
from redis_acker.driver.telling import Teller
from redis_acker.errors import MemoryFull, ServerUnavailable
from redis_acker.retries.book import RetryBook
from redis_acker.retries.policy import RetryPolicy
from redis_acker.store.acker import Acker
from redis_acker.store.lease import LEASE_MS, Lease, NoLease
from redis_acker.store.streams import Cause

SHORTEST_PAUSE_S = 0.001
LONGEST_PAUSE_S = 0.05
"""How long a driver pauses after a round in which there was nothing to do. It doubles from round to round: what another
process acks is noticed after about as long again as its work took."""

BUSY_EVENTS_EVERY_S = 0.005
IDLE_EVENTS_EVERY_S = 0.5
"""How often a driver looks for final events without being woken: while it emits, and while nothing is pending."""

log = logging.getLogger(__name__)


class SpoutDriver:
    """Emits under max_pending, acks the source on completion, replays what failed, buries what keeps failing.

    The message ids and attempts of pending roots are kept in the store, those of failed messages in a hash beside it.
    So when a driver is killed, the next one under the same spout name takes over, and replays nothing that was
    completed. life.py has the states of a message and what takes it from one to the next.

    If the store or the source fails in the middle of a round, the next round picks up there: what was read, handed out
    or decided is kept until it is dealt with.
    """

    def __init__(
        self,
        spout: Spout,
        acker: Acker | None,
        router: Router,
        *,
        name: str,
        context: TaskContext | None = None,
        max_pending: int = DEFAULT_MAX_PENDING,
        retries: RetryPolicy | None = None,
        own_timeout_ms: int | None = None,
        observer: Observer | None = None,
        holders: Callable[[Collection[int]], dict[int, Cause]] | None = None,
        untracked: Callable[[], int] | None = None,
        live_roots: set[int] | None = None,
        clock: Clock | None = None,
        wait_for_lease: bool = False,
        lease_ms: int = LEASE_MS,
        trials: Trials | None = None,
    ) -> None:
        """acker=None switches tracking off: messages are acked as soon as they are emitted.

        holders says for roots that timed out which component has them, and for how long. untracked counts the tuples in
        no tree that wait for bolts: they take up room too. live_roots always holds the roots that are pending. trials
        is shared by all drivers of a process that is at risk when a message kills it. The other options are explained
        in DriverOptions.
        """
        check_options(
            max_pending=max_pending,
            retries=retries,
            own_timeout_ms=own_timeout_ms,
            observer=observer,
            lease_ms=lease_ms,
        )
        self.name = name
        self.spout = spout
        """The object it was given, which it alone calls while it runs."""
        self._acker, self._router = acker, router
        self._context = context or TaskContext(name, 0, 1)
        self._max_pending, self._retries = max_pending, retries or RetryPolicy()
        self._own_timeout_ms = own_timeout_ms or OWN_TIMEOUT_FACTOR * (acker.settings.timeout_ms if acker else 0)
        self._holders, self._untracked = holders or (lambda roots: {}), untracked or (lambda: 0)
        self._live_roots = live_roots
        self._clock = clock_of(acker, clock)
        self._wait_for_lease, self._lease_ms = wait_for_lease, lease_ms
        self._trials = trials or Trials()
        self._flight: Flight | None = None
        self._reporter = Reporter(name, observer or Observer())
        self.counters = self._reporter.counters
        self._lease: Lease | None = None
        self._wake = Signal()
        lag = None if type(spout).lag is Spout.lag else spout.lag
        self.switch = Switch(acker, name, self._clock.time_ms, lag=lag, wake=self.wake)
        self._spout_is_open = self._is_open = False

    # -- life ----------------------------------------------------------------------------------------------------

    def open(self, stop: threading.Event | None = None) -> bool:
        """Takes the lease of the spout, opens the source, and learns what an earlier driver left in work. False if told
        to stop while it waited for the lease."""
        try:
            lease: Lease = NoLease()
            if self._acker:
                lease = Lease(self._acker, self.name, for_ms=self._lease_ms)
                if not lease.take(wait=self._wait_for_lease, stop=stop or threading.Event()):
                    return False
            self._lease = lease
            lease.renew()
            self._spout_is_open = True
            self.spout.open(self._context)
            self._build(lease)
        except BaseException:
            self.close()
            raise
        return True

    def _build(self, lease: Lease) -> None:
        """Makes the parts of the driver, when what they need is open."""
        self._messages = messages = Messages(self._live_roots)
        reporter, name, clock, own_timeout_ms = self._reporter, self.name, self._clock.time_ms, self._own_timeout_ms
        book = RetryBook(self._acker, name) if self._acker else None
        self._teller = teller = Teller(self.spout, messages, lease, book)
        self._finisher: Finisher | None = None
        self._requests: Requests | None = None
        if self._acker and book:
            self._flight = Flight(self._acker, book, lease, messages, name=name, clock=clock)
            self._flight.adopt(own_timeout_ms=own_timeout_ms)
            self._finisher = Finisher(
                self._acker,
                messages,
                lease,
                book,
                teller,
                reporter,
                self._flight,
                name=name,
                component=self._context.component,
                policy=self._retries,
                own_timeout_ms=own_timeout_ms,
                holders=self._holders,
                clock=clock,
            )
            self._requests = Requests(self._finisher, messages, lease, book, clock)
        self._intake = intake = Intake(
            self.spout,
            messages,
            lease,
            teller,
            self._finisher,
            reporter,
            name=name,
            max_pending=self._max_pending,
            untracked=self._untracked,
            own_timeout_ms=own_timeout_ms,
            clock=clock,
        )
        self._emitter = Emitter(
            intake,
            self._acker,
            self._router,
            messages,
            lease,
            teller,
            self._finisher,
            reporter,
            self._flight,
            self._trials,
            name=name,
            own_timeout_ms=own_timeout_ms,
            clock=clock,
        )
        self._is_open = True

    def run(self, stop: threading.Event) -> None:
        """Drives until told to stop."""
        if not self.open(stop):
            return
        try:
            clock, pause_s, read_s = self._clock, 0.0, -math.inf
            while not stop.is_set():
                was_woken = clock.poll(self._wake, pause_s, self._due_in_s())
                self._wake.clear()
                now_s, is_idle = clock.monotonic_s(), pause_s > 0
                is_due = (is_idle and self._messages.needs_events()) or now_s - read_s >= self._read_every_s()
                if wants_events := was_woken or is_due:
                    read_s = now_s
                goes_on = self._try_step(events=wants_events) and self._may_have_more()
                pause_s = 0.0 if goes_on else min(max(2 * pause_s, SHORTEST_PAUSE_S), LONGEST_PAUSE_S)
        finally:
            self.close()

    def _due_in_s(self) -> float:
        """Time until a message is due, or the lease has to be renewed."""
        assert self._lease is not None
        dues_s = self._lease.due_in_s(), (self._messages.next_due_ms() - self._clock.time_ms()) / 1000
        return min((one for one in dues_s if one > 0), default=math.inf)

    def _read_every_s(self) -> float:
        """How often to look for final events that nobody has woken the driver for."""
        if self._finisher and self._finisher.has_more:
            return 0.0
        return BUSY_EVENTS_EVERY_S if self._messages.needs_events() else IDLE_EVENTS_EVERY_S

    def _may_have_more(self) -> bool:
        """Whether there may be something to do after a round in which there was. Without room only events make some,
        and whoever brings them about wakes the driver."""
        return self._intake.has_room() or bool(self._finisher and self._finisher.has_more)

    def wake(self) -> None:
        """Ends the pause of run(): there are final events, or there is room. Other threads may call it."""
        self._wake.set()

    def _try_step(self, *, events: bool) -> bool:
        try:
            return self.step(events=events)
        except ServerUnavailable as error:
            log.error("Spout %s waits: %s", self.name, error)
            return False

    def step(self, *, events: bool = True) -> bool:
        """One round: final events, own timeouts, replays that are asked for, new messages. False if there was nothing.
        events=False leaves out all but new messages and replays whose pause is over."""
        assert self._lease is not None
        self._lease.renew()
        self.spout.keep_alive()
        busy = False
        try:
            self._teller.commit()  # in case an error prevented it
            if self._finisher and (events or self._finisher.is_adopting):
                busy = self._finisher.consume()
                if self._finisher.is_adopting:
                    return busy
                busy |= self._finisher.time_out()
                if self._requests:
                    self._requests.accept()
            busy |= self._emitter.emit(brings=not self.switch.is_paused())
            if self._finisher:
                self._finisher.release()  # now that bolts have work again
            return busy
        except MemoryFull as error:
            self._reporter.waits_for_memory(error)
            return False

    def is_idle(self) -> bool:
        """Whether the source had nothing new at the last look, nothing is in work or waits for a replay, and everybody
        has been told what became of the last message: source, counters, observer. Other threads may ask."""
        # Twice, because a message may move on in the middle of a look.
        return self._is_open and self._looks_idle() and self._looks_idle()

    def _looks_idle(self) -> bool:
        return self._emitter.is_idle() and (self._finisher is None or self._finisher.is_idle())

    def close(self) -> None:
        """Closes the source and gives up the lease. What is pending stays so, for the next driver."""
        try:
            for life in self._messages.all(State.PENDING) if self._is_open else ():
                if life.trace:
                    life.trace.end("left pending")
            if self._spout_is_open:
                self.spout.close()
        finally:
            if self._lease:
                self.switch.forget_lag()
                has_read_all = self._is_open and self._finisher is not None and not self._finisher.is_adopting
                self._lease.give_up(began=self._flight.end(has_read_all=has_read_all) if self._flight else "")
