"""Emits the messages of a source: as roots if they are tracked, else as they are."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from operator import xor
from typing import Any

from redis_acker.acker import Acker
from redis_acker.anchors import Anchors
from redis_acker.collector import Edges, Router
from redis_acker.errors import BadInput
from redis_acker.ids import U64Array, indexes_of
from redis_acker.in_work import InWork
from redis_acker.message_ids import MessageId, check_message_ids
from redis_acker.spout import Message

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Batch:
    """Messages that are allocated to roots but perhaps not yet pending."""

    since_ms: int
    messages: list[Message]
    attempts: list[int]
    roots: U64Array
    edges: list[list[tuple[Any, int]]]
    """For each message the tasks that get it, and the edge under which they do."""


class Emitter:
    """The way of messages from the source to their tasks: inbox, batch, outbox.

    What an error stops on its way stays where it is, and emit() goes on with it: the source has handed it out and will
    not do so again.
    """

    def __init__(
        self,
        work: InWork,
        acker: Acker | None,
        router: Router,
        *,
        max_pending: int,
        is_dying: Callable[[MessageId], bool],
        give_up: Callable[[Message], None],
    ) -> None:
        """is_dying says of a message that its dead letter is being written; give_up writes one."""
        self._work, self._acker, self._router = work, acker, router
        self._max_pending = max_pending
        self._is_dying, self._give_up = is_dying, give_up
        self._inbox: list[Message] = []
        self._batch: _Batch | None = None
        self._outbox: deque[tuple[Any, Message, Anchors]] = deque()
        self._to_ack: deque[MessageId] = deque()
        self._new_edge = Edges()
        self._an_id: list[MessageId] = []
        self._warned = False
        self.is_exhausted = False
        """Whether the source had nothing at the last look."""

    def is_idle(self) -> bool:
        return self.is_exhausted and not (self._inbox or self._batch or self._outbox or self._to_ack)

    def emit(self) -> bool:
        """Emits what the source has and there is room for. False if there was nothing."""
        self._deliver()
        return self._send() if self._batch else self._emit_new()

    # -- the inbox -----------------------------------------------------------------------------------------------

    def _emit_new(self) -> bool:
        work = self._work
        room = self._max_pending - len(work.in_flight)
        room -= work.replays.held_count()
        self._inbox[:0] = work.replays.take_ready(room - len(self._inbox))
        room -= len(self._inbox)
        if room > 0:
            found = list(work.as_holder(work.spout.next_batch, room))
            self.is_exhausted = not found
            self._inbox += found
        elif not self._inbox:
            work.counters.waited += 1
            if not self._warned:
                self._warned = True
                log.warning("Spout %s waits: max_pending=%d roots are unfinished.", work.name, self._max_pending)
        busy = bool(self._inbox or self._to_ack)
        if busy:
            self._sort(self._sift() if self._acker else self._inbox)
        return busy

    def _sift(self) -> list[Message]:
        """The messages of the inbox that are to be emitted."""
        work = self._work
        self._check_ids([message.id for message in self._inbox if message.id is not None])
        told = [one.id for one in self._inbox if one.id is not None and one.id in work.finished]
        for message_id in told:
            work.as_holder(work.finished[message_id], message_id)
        if told:
            work.as_holder(work.spout.commit)
        seen: set[MessageId] = set(told)
        messages = [message for message in self._inbox if self._is_to_be_emitted(message, seen)]
        for message_id in told:
            work.finished.pop(message_id, None)
        return messages

    def _check_ids(self, ids: list[MessageId]) -> None:
        try:
            check_message_ids([*self._an_id, *ids], len(self._an_id) + len(ids))
        except BadInput as error:
            raise BadInput(
                f"Spout {self._work.name!r} hands out a message id that cannot be stored: {error}"
            ) from error
        self._an_id = self._an_id or ids[:1]

    def _is_to_be_emitted(self, message: Message, seen: set[MessageId]) -> bool:
        if message.id is None:
            return True
        if message.id in seen:
            return False  # the source handed it out twice in one batch, or it is finished
        seen.add(message.id)
        if in_flight := self._work.in_flight.get(message.id):
            # In work, from before a restart or handed out twice: from now on its payload is known.
            self._work.in_flight[message.id] = replace(in_flight, message=message)
            return False
        return not (self._is_dying(message.id) or self._work.replays.hold_back(message))

    def _sort(self, messages: list[Message]) -> None:
        """Makes what is tracked a batch, and sends out the rest. Nothing leaves the inbox before all is checked."""
        tracked: list[tuple[Message, list[Any]]] = []
        untracked: list[tuple[Message, list[Any]]] = []
        for message in messages:
            targets = [] if message.error else self._router.targets(message.stream, message.values)
            is_tracked = self._acker and message.id is not None and targets
            (tracked if is_tracked else untracked).append((message, targets))
        if tracked:
            self._batch = self._allocate([one for one, _ in tracked], [targets for _, targets in tracked])
        self._inbox = []
        for message, targets in untracked:
            self._emit_untracked(message, targets)
        if untracked or self._to_ack:
            self._deliver()
            while self._to_ack:
                self._work.as_holder(self._work.spout.ack, self._to_ack[0])
                self._to_ack.popleft()
            self._work.as_holder(self._work.spout.commit)
        if self._batch:
            self._send()

    def _emit_untracked(self, message: Message, targets: list[Any]) -> None:
        if message.error:
            self._give_up(message)
            return
        self._outbox.extend((target, message, Anchors()) for target in targets)
        self._work.counters.emitted += 1
        if message.id is not None:
            self._to_ack.append(message.id)
            self._work.replays.drop(message.id)

    # -- the batch -----------------------------------------------------------------------------------------------

    def _allocate(self, messages: list[Message], targets_of: list[list[Any]]) -> _Batch:
        assert self._acker is not None
        attempts = [self._work.replays.next_attempt(one.id) for one in messages if one.id is not None]
        edges = [[(target, self._new_edge()) for target in targets] for targets in targets_of]
        roots = self._acker.allocate(self._work.name, len(messages))
        return _Batch(self._work.clock(), messages, attempts, roots, edges)

    def _send(self) -> bool:
        """Makes the batch pending, then sends it out."""
        assert self._acker is not None
        assert self._batch is not None
        batch, work = self._batch, self._work
        if work.clock() - batch.since_ms > self._acker.settings.timeout_ms / 2:
            # Too old: its roots may have timed out since, and an init must not bring them back.
            work.as_holder(self._abandon, self._acker, batch.roots)
            targets_of = [[target for target, _ in edges] for edges in batch.edges]
            batch = self._batch = self._allocate(batch.messages, targets_of)
        ids: list[Any] = [message.id for message in batch.messages]
        ack_vals = [reduce(xor, (edge for _, edge in edges)) for edges in batch.edges]
        work.renew_lease()
        self._acker.init(batch.roots, ack_vals, message_ids=ids, attempts=batch.attempts, echo_ids=True)
        self._batch = None
        work.is_short_of_memory = False
        for message, root, attempt, edges in zip(
            batch.messages, batch.roots.tolist(), batch.attempts, batch.edges, strict=True
        ):
            assert message.id is not None
            work.put(message.id, root, attempt, message)
            self._outbox.extend((target, message, Anchors({root: edge})) for target, edge in edges)
            work.counters.emitted += 1
            work.counters.replayed += attempt > 1
        self._deliver()
        return True

    def _abandon(self, acker: Acker, roots: U64Array) -> None:
        """Fails roots that became pending though the reply was lost: nobody works on them."""
        begins = roots[indexes_of(roots) == 0].tolist()
        for first, end in zip(begins, [*begins[1:], int(roots[-1]) + 1], strict=True):
            if acker.inspect(first).state == "pending":
                block = roots[(roots >= first) & (roots < end)]
                acker.fail(block, component=self._work.name, error="its init was answered too late")

    def _deliver(self) -> None:
        while self._outbox:
            target, message, anchors = self._outbox[0]
            self._work.as_holder(self._router.deliver, target, message.values, message.stream, anchors)
            self._outbox.popleft()
