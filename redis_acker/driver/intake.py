"""Brings in messages: from the source, from the retry book, and those whose pause between two attempts is over."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice, takewhile
from typing import Any

from redis_acker.components.spout import Message, Spout
from redis_acker.driver.finishing import Finisher
from redis_acker.driver.life import Life, Messages, State
from redis_acker.driver.observer import Reporter
from redis_acker.driver.telling import Teller
from redis_acker.errors import BadInput
from redis_acker.store.lease import Lease
from redis_acker.store.message_ids import MessageId, check_message_ids

BUSY_FACTOR = 10
"""How many times as long a source that has other messages may take to hand out one that it was asked for again."""

_IN_WORK = (State.READY, State.EMITTING, State.PENDING, State.FAILED, State.WAITING)


class Intake:
    """Makes messages READY, no more than max_pending allows. While the source has more messages than there is room for,
    replays get half of it, so that they leave some for first attempts.

    After an error, the next call picks up where it stopped: nothing that the source has handed out is dropped, since it
    would not hand it out again.
    """

    def __init__(
        self,
        spout: Spout,
        messages: Messages,
        lease: Lease,
        teller: Teller,
        finisher: Finisher | None,
        reporter: Reporter,
        *,
        name: str,
        max_pending: int,
        untracked: Callable[[], int],
        own_timeout_ms: int,
        clock: Callable[[], int],
    ) -> None:
        """finisher: None if tracking is off. untracked: how many tuples in no tree wait for bolts."""
        self._spout, self._messages, self._lease = spout, messages, lease
        self._teller, self._finisher, self._reporter = teller, finisher, reporter
        self._name, self._max_pending, self._untracked = name, max_pending, untracked
        self._own_timeout_ms, self._clock = own_timeout_ms, clock
        self._inbox: dict[MessageId, Message] = {}
        """Handed out by the source, and not in a state yet: an error may come in between."""
        self.loose: list[Message] = []
        """To be emitted outside any tree: messages without id, which have no state, or all if tracking is off."""
        self._an_id: list[MessageId] = []
        self._has_more = False
        """Whether the source handed out as many messages as it was asked for."""
        self._odd_room = 0
        """Whose turn it is when room cannot be halved: 1 if a replay's."""
        self._is_exhausted = False
        """Whether the source had nothing when it was last asked, and has not been asked for a replay since."""

    def is_idle(self) -> bool:
        """Whether the source had nothing at the last look, and nothing waits to be emitted. Other threads may ask."""
        return self._is_exhausted and not (self._inbox or self.loose)

    def bring(self) -> bool:
        """Makes messages READY, or loose. False if there was nothing."""
        self._sort_in()
        room = self._room()
        busy = self._end_pauses(room)
        return self._fetch(room) or busy

    def hold(self) -> bool:
        """In place of bring() while the spout is paused: the source is not asked, and does not have to answer."""
        for life in self._messages.all(State.ASKED):
            life.deadline_ms = self._clock() + self._own_timeout_ms
        return False

    def has_room(self) -> bool:
        """Whether max_pending leaves room for messages."""
        return self._room() > 0

    def _room(self) -> int:
        messages = self._messages
        tracked = len(messages.all(State.PENDING)) + len(messages.all(State.READY)) + messages.held_back
        return self._max_pending - tracked - self._untracked()

    # -- replays -------------------------------------------------------------------------------------------------

    def _end_pauses(self, room: int) -> bool:
        """Ends pauses that are over, as far as replays may take the room: the message is here, or in the retry book, or
        the source is asked for it. False if the source was not asked for any."""
        share = (max(room, 0) + self._odd_room) // 2 if self._has_more else max(room, 0)
        was_asked = False
        while life := self._messages.first_rested(self._clock()):
            if life.message:  # it has been counted
                self._messages.move(life, State.READY)
                continue
            if share == 0:
                break
            share -= 1
            if life.retry and life.retry.payload is not None:
                self._messages.move(life, State.STORED)
            else:
                was_asked, self._is_exhausted = True, False  # before the move, or is_idle() could miss it
                self._lease.renew()
                self._spout.fail(life.id)
                life.deadline_ms = self._clock() + self._own_timeout_ms
                self._messages.move(life, State.ASKED)
        self._odd_room ^= 1
        return was_asked

    def _give_up_unseen(self, *, has_others: bool) -> None:
        """Gives up what the source does not hand out again. One that has others to hand out gets more time."""
        patience_ms = self._own_timeout_ms * (BUSY_FACTOR if has_others else 1)
        latest_ms = self._clock() + self._own_timeout_ms - patience_ms
        for life in list(takewhile(lambda life: life.deadline_ms <= latest_ms, self._messages.all(State.ASKED))):
            assert self._finisher is not None
            self._finisher.give_up(
                life, f"the source was asked to hand it out again and has not done so for {patience_ms} ms"
            )

    # -- the source ----------------------------------------------------------------------------------------------

    def _fetch(self, room: int) -> bool:
        """Makes messages READY while there is room: those in the retry book, and what the source hands out. False if
        the source gave none."""
        messages = self._messages
        for life in list(islice(messages.all(State.STORED), max(room, 0))):
            assert life.retry is not None
            messages.keep(life, Message(life.retry.payload or [], life.id, life.retry.stream))
            messages.move(life, State.READY)
            room -= 1
        if room <= 0:
            if not messages.all(State.READY):
                self._reporter.waits_for_room(self._max_pending)
            return False
        self._lease.renew()
        found = self._next_batch(room)
        self._is_exhausted, self._has_more = not found, len(found) >= room
        if not found:
            self._give_up_unseen(has_others=False)
            return False
        if self._finisher:
            self._check_ids([message.id for message in found if message.id is not None])
        for message in found:
            if message.id is None or not self._finisher:
                self.loose.append(message)
            elif message.id in self._inbox:
                self._reporter.repeated(message)
            else:
                self._inbox[message.id] = message
        self._sort_in()
        self._give_up_unseen(has_others=True)
        return True

    def _next_batch(self, room: int) -> list[Message]:
        batch: Any = self._spout.next_batch(room)
        if not isinstance(batch, Iterable):
            raise BadInput(
                f"Spout {self._name!r} returned {batch!r:.200} from next_batch(): return a list of messages, an empty "
                "one if there are none now."
            )
        found = list(batch)
        for message in found:
            if not isinstance(message, Message):
                raise BadInput(
                    f"Spout {self._name!r} handed out {message!r:.200} from next_batch(), which is not a Message: "
                    "return a list of Message(values, id=...)."
                )
        return found

    def _check_ids(self, ids: list[MessageId]) -> None:
        try:
            check_message_ids([*self._an_id, *ids], len(self._an_id) + len(ids))
        except BadInput as error:
            raise BadInput(f"Spout {self._name!r} hands out a message id that cannot be stored: {error}") from error
        self._an_id = self._an_id or ids[:1]

    def _sort_in(self) -> None:
        """Decides what becomes of messages that the source has handed out. If they are pending, or their pause is not
        over, their values are kept and nothing else happens."""
        messages, taken = self._messages, 0
        try:
            for message_id, message in self._inbox.items():
                life = messages.life_of(message_id)
                if life.state is None:  # as a rule
                    life.message = message
                    messages.move(life, State.READY)
                else:
                    self._take_again(life, message)
                taken += 1
        finally:
            self._inbox = dict(islice(self._inbox.items(), taken, None))
        self._teller.commit()

    def _take_again(self, life: Life, message: Message) -> None:
        if life.state is State.FINISHED:
            self._teller.tell(life, is_dead=life.is_dead)
        elif life.state in _IN_WORK and life.message:
            self._reporter.repeated(message)
        self._messages.keep(life, message)
        if life.state is State.ASKED:
            self._messages.move(life, State.READY)
