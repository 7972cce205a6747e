"""The life of a message in a spout driver: its states, and what takes it from one to the next."""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from itertools import count, islice

from redis_acker.components.spout import Message
from redis_acker.components.tracing import MessageTrace
from redis_acker.retries.book import DeadLetter, Retry, Suspicion
from redis_acker.store.message_ids import MessageId


class State(Enum):
    """What a driver is doing with a message. A message in no state is not known to it: the source has it, or it is
    over."""

    READY = "its values are here; it is emitted next"
    EMITTING = "it has a root; the store has not answered its init yet"
    PENDING = "its tree is being worked on"
    UNTRACKED = "it is emitted outside any tree; the source is to be told that it is done"
    FAILED = "an attempt failed; the retry book does not know yet"
    WAITING = "its failure is in the retry book; it pauses before the next attempt"
    ASKED = "the source has been asked to hand it out again"
    STORED = "its pause is over and its values are in the retry book; it is emitted as soon as there is room"
    DYING = "it is given up; its dead letter is to be written"
    TOLD = "the source has been told that it is complete or dead, and is to commit that"
    FINISHED = "it is over, but an earlier driver emitted it: the source may hand it out once more"

    __hash__ = object.__hash__  # in C: Enum's own would cost as much as the rest of a move


TRANSITIONS: dict[State | None, dict[State | None, str]] = {
    None: {
        State.READY: "the source hands it out",
        State.UNTRACKED: "the source hands it out, and tracking is off",
        State.PENDING: "an earlier driver left its root pending",
        State.WAITING: "an earlier driver noted its failure, or someone asks for a replay",
        State.FAILED: "an earlier driver left its failure unread",
        State.DYING: "the same, and it was the last attempt or fatal",
        State.TOLD: "an earlier driver left its completion unread",
    },
    State.READY: {
        State.EMITTING: "it gets a root",
        State.UNTRACKED: "nobody listens to its stream",
        State.DYING: "the source could not read it",
    },
    State.EMITTING: {
        State.PENDING: "the store answers",
    },
    State.PENDING: {
        State.TOLD: "its root completes",
        State.FAILED: "its root fails, times out, or is lost by the store",
        State.DYING: "the same, and it was the last attempt or fatal",
        State.PENDING: "the store has been silent for long, but still knows its root",
    },
    State.UNTRACKED: {
        State.TOLD: "it is delivered",
    },
    State.FAILED: {
        State.WAITING: "the retry book knows",
        State.FAILED: "an earlier driver left the failure of another root unread",
        State.DYING: "the same, and it was the last attempt or fatal",
        State.TOLD: "an earlier driver left the completion of another root unread",
    },
    State.WAITING: {
        State.ASKED: "its pause is over: the source is asked for it",
        State.READY: "its pause is over, and the source has already handed it out",
        State.STORED: "its pause is over, and the source is done with it: it was dead",
        State.FAILED: "an earlier driver left the failure of the next attempt unread",
        State.DYING: "the same, and it was the last attempt or fatal",
        State.TOLD: "an earlier driver left the completion of the next attempt unread",
    },
    State.ASKED: {
        State.READY: "the source hands it out",
        State.DYING: "the source has nothing to hand out, and has had long enough",
    },
    State.STORED: {
        State.READY: "there is room",
    },
    State.DYING: {
        State.TOLD: "its dead letter is stored",
    },
    State.TOLD: {
        None: "the source has committed",
        State.FINISHED: "the source has committed, but never handed it out to this driver",
    },
    State.FINISHED: {
        State.TOLD: "the source hands it out, and is told again",
        State.WAITING: "someone asks for a replay",
    },
}
"""Every change of state, and the event behind it. None: not known to the driver."""


@dataclass(eq=False, slots=True)
class Life:
    """What the driver knows of a message."""

    id: MessageId
    state: State | None = None
    message: Message | None = None
    """As the source handed it out to this driver. PENDING, DYING and TOLD without it: emitted by an earlier driver."""
    retry: Retry | None = None
    """Its failed attempts, and when the next is due, as in the retry book or to be noted there."""
    root: int = 0
    attempt: int = 0
    """The attempt that its root is."""
    is_adopted: bool = False
    """Whether an earlier driver emitted that root."""
    deadline_ms: int = 0
    """PENDING: when the store has been silent about its root for so long that it must have lost it. ASKED: when the
    source has had long enough to hand it out."""
    letter: DeadLetter | None = None
    """DYING: its dead letter."""
    is_dead: bool = False
    """UNTRACKED, TOLD, FINISHED: what the source is told, that it is dead or complete."""
    turn: int = 0
    """WAITING: its place among messages whose pauses end at the same time."""
    trace: MessageTrace | None = None
    """If the program traces what this driver emits."""

    @property
    def next_attempt(self) -> int:
        return self.retry.attempt + 1 if self.retry else 1

    @property
    def suspicion(self) -> Suspicion | None:
        return self.retry.suspicion if self.retry else None


class Messages:
    """All messages that a driver knows, each in one state."""

    def __init__(self, live_roots: set[int] | None = None) -> None:
        """live_roots always holds the roots of what is PENDING; drivers of one run may share it."""
        self._live_roots = set() if live_roots is None else live_roots
        self._lives: dict[MessageId, Life] = {}
        self._in: dict[State, dict[MessageId, Life]] = {state: {} for state in State}
        self._pauses: list[tuple[int, int, Life]] = []
        """A heap of what is WAITING. Entries of messages that are not any more, or once more, are skipped."""
        self._turns = count(1)
        self.held_back = 0
        """Messages that the source has handed out before the end of their pause."""
        self.in_flight = 0
        """Those that are PENDING and that this driver has emitted."""

    def life_of(self, message_id: MessageId) -> Life:
        """What is known of a message. A new life, in no state, if it is not known."""
        return self._lives.get(message_id) or Life(message_id)

    def all(self, state: State) -> Collection[Life]:
        """Messages in a state, in the order in which they came into it. To be copied by who moves them meanwhile."""
        return self._in[state].values()

    def move(self, life: Life, to: State | None) -> None:
        """Takes a message to another state, or, with None, out of the driver's sight."""
        came_from = life.state
        if to not in TRANSITIONS[came_from]:
            raise AssertionError(f"Message {life.id!r} cannot go from {came_from} to {to}.")
        if came_from is None:
            self._lives[life.id] = life
        else:
            del self._in[came_from][life.id]
            if came_from is State.WAITING and life.message:
                self.held_back -= 1
            elif came_from is State.PENDING:
                self._live_roots.discard(life.root)
                self.in_flight -= not life.is_adopted
        life.state = to
        if to is None:
            del self._lives[life.id]
        else:
            self._in[to][life.id] = life
            if to is State.PENDING:
                self._live_roots.add(life.root)
                self.in_flight += not life.is_adopted
            elif to is State.WAITING:
                assert life.retry is not None
                life.turn = next(self._turns)
                heapq.heappush(self._pauses, (life.retry.due_ms, life.turn, life))

    def move_all(self, came_from: State, to: State | None) -> None:
        """Takes every message in a state to another. As so many calls of move(), but for a third of the time."""
        lives = self._in[came_from]
        if State.WAITING in (came_from, to) or to not in TRANSITIONS[came_from]:
            raise AssertionError(f"Messages cannot go from {came_from} to {to} all at once.")
        for life in lives.values():
            life.state = to
        if came_from is State.PENDING:
            self._live_roots.difference_update(life.root for life in lives.values())
            self.in_flight -= sum(not life.is_adopted for life in lives.values())
        elif to is State.PENDING:
            self._live_roots.update(life.root for life in lives.values())
            self.in_flight += sum(not life.is_adopted for life in lives.values())
        if to is None:
            for message_id in lives:
                del self._lives[message_id]
        else:
            self._in[to].update(lives)
        lives.clear()

    def keep(self, life: Life, message: Message) -> None:
        """Keeps a message as it was handed out."""
        if life.state in (State.FAILED, State.WAITING) and life.message is None:
            self.held_back += 1
        life.message = message

    def first_rested(self, now_ms: int) -> Life | None:
        """The message in WAITING whose pause was over first; None if all pauses run."""
        while self._pauses and self._pauses[0][0] <= now_ms:
            _, turn, life = self._pauses[0]
            if life.state is State.WAITING and life.turn == turn:
                return life
            heapq.heappop(self._pauses)
        return None

    def next_due_ms(self) -> float:
        """When the next pause ends, or the next message is taken for lost; infinite if nothing waits."""
        dues = [due_ms for due_ms, _, _ in self._pauses[:1]]
        dues += [life.deadline_ms for state in (State.PENDING, State.ASKED) for life in islice(self.all(state), 1)]
        return min(dues, default=math.inf)

    def is_idle(self) -> bool:
        """Whether every message is completed or dead. Other threads may ask."""
        return len(self._lives) == len(self._in[State.FINISHED])

    def needs_events(self) -> bool:
        """Whether something waits for a final event, or for what one has begun."""
        return bool(self._in[State.PENDING] or self._in[State.FAILED] or self._in[State.DYING])
