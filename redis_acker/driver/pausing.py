"""Pauses of a spout, and the lag of its source."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress

from redis_acker.errors import AckerError, MemoryFull, ServerUnavailable, traceback_of
from redis_acker.store.acker import Acker
from redis_acker.store.spout_states import SpoutStates

LOOK_EVERY_MS = 1_000
"""How often a driver looks whether its spout is paused."""

LAG_EVERY_MS = 5_000
"""How often a driver says how much waits in the source."""

log = logging.getLogger(__name__)


class Switch:
    """Whether a spout is paused. With an acker the store knows, for drivers to come too; without, only this driver."""

    def __init__(
        self,
        acker: Acker | None,
        name: str,
        clock: Callable[[], int],
        *,
        lag: Callable[[], int | None] | None,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        """lag: tells how much waits in the source; None if nobody can. wake ends the rest of the driver."""
        self._acker, self._name, self._clock, self._ask_lag, self._wake = acker, name, clock, lag, wake
        self._is_paused = False
        self._next_look_ms = self._next_lag_ms = 0
        self._lag: int | None = None

    def pause(self) -> None:
        """The spout hands out no new messages and starts no replays; what is pending goes on. Other threads may call
        it."""
        if self._acker:
            SpoutStates(self._acker.shards).pause(self._acker.spout_number(self._name))
        self._turn(True)

    def resume(self) -> None:
        """Other threads may call it."""
        if self._acker:
            SpoutStates(self._acker.shards).resume(self._acker.spout_number(self._name))
        self._turn(False)
        self._wake()

    def is_paused(self) -> bool:
        """Called in every round; asks the store about once a second."""
        if self._acker and self._clock() >= self._next_look_ms:
            number, states = self._acker.spout_number(self._name), SpoutStates(self._acker.shards)
            self._turn(states.is_paused(number))
            if self._ask_lag and self._clock() >= self._next_lag_ms:
                self._tell_lag(states, number, self._ask_lag)
            self._next_look_ms = self._clock() + LOOK_EVERY_MS
        return self._is_paused

    def _turn(self, is_paused: bool) -> None:
        if is_paused != self._is_paused:
            self._is_paused = is_paused
            what = "is paused: no new messages and no replays until it is resumed" if is_paused else "is resumed"
            log.warning("Spout %s %s.", self._name, what)

    def _tell_lag(self, states: SpoutStates, number: int, ask: Callable[[], int | None]) -> None:
        self._next_lag_ms = self._clock() + LAG_EVERY_MS
        try:
            lag = ask()
        except ServerUnavailable:
            lag = None  # it is back later
        except Exception as error:
            self._ask_lag = lag = None
            log.error("Spout %s cannot tell its lag, and is not asked again.\n%s", self._name, traceback_of(error))
        if lag != self._lag:
            with suppress(MemoryFull):  # only people want to know, and there is other work to do
                states.note_lag(number, lag)
                self._lag = lag

    def forget_lag(self) -> None:
        """Called when the driver ends. What a killed one has said is not shown: nobody drives its spout."""
        if self._acker and self._lag is not None:
            with suppress(AckerError):
                SpoutStates(self._acker.shards).note_lag(self._acker.spout_number(self._name), None)
