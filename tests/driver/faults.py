"""Points at which a driver touches the world, numbered, so that something can happen at any one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from redis_acker import Acker, Anchors, Message, Spout, TaskContext
from redis_acker.components.component import Router
from redis_acker.errors import ServerUnavailable
from redis_acker.store.message_ids import MessageId
from redis_acker.store.transport import Command


class Killed(BaseException):
    """Ends a driver as SIGKILL does: nothing that it tries to do afterwards has any effect."""


class Points:
    """Counts commands to Redis, calls of the source and deliveries, before and after each. Strikes where it is hit."""

    def __init__(self, is_hit: Callable[[int, str], bool], strike: Callable[[], None]) -> None:
        """is_hit is asked at every point, with its number and its name."""
        self._is_hit = is_hit
        self._strike = strike
        self._is_dead = False
        self.passed = 0
        self.hits: list[str] = []
        """Where it struck."""

    def pass_by(self, where: str) -> None:
        if self._is_dead:
            raise Killed
        self.passed += 1
        if self._is_hit(self.passed, where):
            self.hits.append(where)
            self._strike()

    def kill(self) -> None:
        self._is_dead = True
        raise Killed

    def around(self, name: str, call: Callable[..., Any], *args: Any) -> Any:
        self.pass_by(f"before {name}")
        result = call(*args)
        self.pass_by(f"after {name}")
        return result


def no_faults() -> Points:
    return Points(lambda number, where: False, lambda: None)


def killing_at(point: int) -> Points:
    points = Points(lambda number, where: number == point, lambda: points.kill())
    return points


def unavailable(is_hit: Callable[[int, str], bool]) -> Points:
    """No answer where it is hit: before a command it does not arrive, after it the reply is lost."""
    return Points(lambda number, where: where not in _NOT_OURS and is_hit(number, where), _do_not_answer)


_NOT_OURS = {"after next_batch", "before open", "after open", "after deliver"}
"""Where a lost answer is for others to deal with: a source that has handed out messages, the tasks."""


def _do_not_answer() -> None:
    raise ServerUnavailable("no answer")


def watched_acker(acker: Acker, points: Points) -> Acker:
    """The acker, with a point before and after each command that it sends."""
    run = acker.shards.transport.run

    def run_watched(commands: Iterable[Command], *, retry_for_s: float | None = None) -> list[Any]:
        try:
            return [
                reply
                for command in commands
                for reply in points.around(name_of(command), lambda one: run([one], retry_for_s=retry_for_s), command)
            ]
        except ServerUnavailable:
            acker.shards.transport.troubles += 1
            raise

    setattr(acker.shards.transport, "run", run_watched)  # noqa: B010 -- mypy takes no assignment to a method
    return acker


def name_of(command: Command) -> str:
    return command.script.name if command.script else " ".join(str(part) for part in command.args[:1])


class WatchedSpout(Spout):
    """A spout, with a point before and after each call."""

    def __init__(self, spout: Spout, points: Points) -> None:
        self._spout = spout
        self._points = points
        self.fields = spout.fields

    def open(self, context: TaskContext) -> None:
        self._points.around("open", self._spout.open, context)

    def next_batch(self, limit: int) -> Iterable[Message]:
        batch: Iterable[Message] = self._points.around("next_batch", self._spout.next_batch, limit)
        return batch

    def ack(self, message_id: MessageId) -> None:
        self._points.around("ack", self._spout.ack, message_id)

    def fail(self, message_id: MessageId) -> None:
        self._points.around("fail", self._spout.fail, message_id)

    def dead(self, message_id: MessageId) -> None:
        self._points.around("dead", self._spout.dead, message_id)

    def commit(self) -> None:
        self._points.around("commit", self._spout.commit)

    def keep_alive(self) -> None:
        self._spout.keep_alive()

    def close(self) -> None:
        self._points.around("close", self._spout.close)


class WatchedRouter:
    """A router, with a point before and after each delivery."""

    def __init__(self, router: Router, points: Points) -> None:
        self._router = router
        self._points = points

    def targets(self, stream: str, values: Sequence[Any]) -> list[Any]:
        return self._router.targets(stream, values)

    def deliver(self, target: Any, values: Sequence[Any], stream: str, anchors: Anchors) -> None:
        self._points.around("deliver", self._router.deliver, target, values, stream, anchors)
