"""Messages that other programs hand over, in a topology."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis

from redis_acker import (
    Acker,
    Anchors,
    LocalRunner,
    Message,
    RetryPolicy,
    Rotator,
    Spout,
    TaskContext,
    new_edges,
)
from redis_acker.spouts.anchored import AnchoredSpout
from redis_acker.spouts.redis_stream import RedisStreamSpout
from redis_acker.store.message_ids import MessageId
from tests.backends import Servers
from tests.spans import Spans, is_failed, spans
from tests.spouts.kit import Book, Work, topology
from tests.waiting import wait_until

__all__ = ["spans"]

ONCE = RetryPolicy(max_attempts=1)
TRACE = bytes(range(1, 25)) + b"\1"


@pytest.fixture
def acker(servers: Servers, namespace: str) -> Iterator[Acker]:
    with Acker(servers.get("redis-7.0").url, namespace=namespace) as acker:
        yield acker


class Sender:
    """Another program: its messages, each with rows in a stream."""

    def __init__(self, acker: Acker, stream: str) -> None:
        self.acker, self.stream = acker, stream
        self.client = redis.Redis.from_url(acker.urls[0])

    def send(self, messages: int, rows: int = 2) -> None:
        roots, edges = self.acker.allocate("sender", messages), new_edges(messages * rows).reshape(messages, rows)
        xors = [int(one[0]) ^ int(one[1]) if rows == 2 else int(one[0]) for one in edges]
        self.acker.init(roots, xors, message_ids=[f"m{i}" for i in range(messages)])
        self.rows: list[dict[str, Any]] = [
            {"value": f"{i}/{j}", "anchors": Anchors({int(root): int(edges[i][j])}).to_bytes()}
            for i, root in enumerate(roots)
            for j in range(rows)
        ]

    def deliver(self, *rows: dict[str, Any]) -> None:
        for row in rows:
            self.client.xadd(self.stream, row)  # type: ignore[arg-type]

    def counts(self) -> tuple[int, int, int]:
        [spout] = [one for one in self.acker.stats().spouts if one.name == "sender"]
        return spout.completed, spout.failed, spout.pending

    def spout(self) -> AnchoredSpout:
        source = RedisStreamSpout(self.acker.urls[0], self.stream, group="work", fields=("value",), anchors="anchors")
        return AnchoredSpout(source, self.acker.urls[0], name="worker", namespace=self.acker.namespace)


@pytest.fixture
def sender(acker: Acker, namespace: str) -> Iterator[Sender]:
    sender = Sender(acker, f"{namespace}-rows")
    yield sender
    sender.client.delete(sender.stream)
    sender.client.close()


def test_rows_that_come_twice_are_worked_on_once_and_complete_their_messages(acker: Acker, sender: Sender) -> None:
    sender.send(20)
    book = Book()
    sender.deliver(*sender.rows[:30])
    with LocalRunner(topology(sender.spout(), Work(book)), acker) as runner:
        runner.wait_until_idle()
        wait_until(lambda: sender.counts() == (15, 0, 5))
        sender.deliver(*sender.rows)  # the transport brings everything again
        runner.wait_until_idle()
        wait_until(lambda: sender.counts() == (20, 0, 0))
    assert book.counts() == {row["value"]: 1 for row in sender.rows}
    assert sender.client.xpending(sender.stream, "work")["pending"] == 0


def test_what_is_given_up_here_fails_the_message_there(acker: Acker, sender: Sender) -> None:
    sender.send(3)

    def refuse(value: str, times: int) -> None:
        if value == "1/0":
            raise ValueError("one")

    sender.deliver(*sender.rows)
    with LocalRunner(topology(sender.spout(), Work(Book(), refuse)), acker, retries=ONCE) as runner:
        runner.wait_until_idle()
        wait_until(lambda: sender.counts() == (2, 1, 0))
    with acker.failures("sender") as failures:
        [failure] = failures.read()
    assert (failure.message_ids, failure.component) == (["m1"], "worker")


def test_the_trace_of_the_other_program_goes_on_here_with_the_failure_marked(
    acker: Acker, sender: Sender, spans: Spans
) -> None:
    sender.send(1)

    def refuse(value: str, times: int) -> None:
        if value == "0/1":
            raise ValueError("one")

    sender.deliver(*({**row, "anchors": row["anchors"] + TRACE} for row in sender.rows))
    retries = RetryPolicy(max_attempts=2, first_ms=1)
    with LocalRunner(topology(sender.spout(), Work(Book(), refuse)), acker, retries=retries) as runner:
        runner.wait_until_idle()
        wait_until(lambda: sender.counts() == (0, 1, 0))

    assert spans.traces() == {int.from_bytes(TRACE[:16], "big")}
    parents = {span.context.span_id: span.name for span in spans.all()}
    messages = [span for span in spans.all() if span.name.startswith("numbers/source")]
    assert [parents.get(one.parent.span_id) for one in messages if one.parent] == [None, None, messages[0].name]
    assert sorted(one.name for one in spans.all() if is_failed(one)) == [messages[0].name] * 2 + ["work"] * 2


def test_a_topology_that_is_started_again_acks_what_the_one_before_has_done(acker: Acker, sender: Sender) -> None:
    sender.send(5)
    sender.deliver(*sender.rows)
    spout = sender.spout()
    acks: list[int] = []

    class Forgetful(AnchoredSpout):
        def commit(self) -> None:  # dies before it tells anybody
            acks.append(len(self._done))

    spout.__class__ = Forgetful
    with LocalRunner(topology(spout, Work(Book())), acker) as runner:
        wait_until(lambda: acks and max(acks) > 0)
        runner.stop()
    assert sender.counts()[0] == 0
    with LocalRunner(topology(sender.spout(), Work(Book())), acker) as runner, Rotator(acker).start():
        runner.wait_until_idle()
        wait_until(lambda: sender.counts() == (5, 0, 0), timeout_s=30)


class Source(Spout):
    """Hands out one message, and notes what it is told."""

    def __init__(self, message: Message) -> None:
        self.message, self.told = message, list[tuple[str, MessageId]]()

    def next_batch(self, limit: int) -> list[Message]:
        return [self.message]

    def ack(self, message_id: MessageId) -> None:
        self.told.append(("ack", message_id))

    def dead(self, message_id: MessageId) -> None:
        self.told.append(("dead", message_id))


def test_what_an_earlier_driver_completed_is_acked_when_the_source_hands_it_out_once_more(
    acker: Acker, sender: Sender
) -> None:
    """Its anchors are not known before that, so the source must not forget it."""
    sender.send(1, rows=1)
    source = Source(Message(["0/0"], "e1", anchors=sender.rows[0]["anchors"]))
    spout = AnchoredSpout(source, acker.urls[0], name="worker", namespace=acker.namespace)
    spout.open(TaskContext("source", 0, 1))
    spout.ack("e1")
    spout.commit()
    assert (source.told, sender.counts()) == ([], (0, 0, 1))
    assert list(spout.next_batch(10)) == [source.message]
    spout.ack("e1")
    spout.commit()
    assert (source.told, sender.counts()) == ([("ack", "e1")], (1, 0, 0))
    assert list(spout.next_batch(10)) == []  # it comes again, and is over
    assert source.told == [("ack", "e1")] * 2
    spout.close()


def test_messages_without_anchors_pass_through(acker: Acker, sender: Sender) -> None:
    sender.send(1)
    book = Book()
    sender.deliver(*sender.rows, {"value": "plain"})
    with LocalRunner(topology(sender.spout(), Work(book)), acker) as runner:
        runner.wait_until_idle()
        wait_until(lambda: sender.counts() == (1, 0, 0))
    assert set(book.counts()) == {"0/0", "0/1", "plain"}
    assert sender.client.xpending(sender.stream, "work")["pending"] == 0
