"""A program without a runner takes in what others hand over, however often it is delivered."""

from __future__ import annotations

import numpy as np
import pytest

from redis_acker import Anchors, Delivery, Inbox
from tests.components.desk import Desk, tuple_of
from tests.components.store import Store
from tests.spans import Spans, attribute, spans

__all__ = ["spans"]

TRACE = bytes(range(1, 25)) + b"\1"


def handed_over(store: Store, count: int) -> tuple[int, list[bytes]]:
    """A root, and the headers of some deliveries that a bolt made of it."""
    root, desk = store.start_root(7), Desk(store.acker)
    given = tuple_of((root, 7))
    headers = [desk.collector.hand_over(given).to_bytes() for _ in range(count)]
    desk.ack(given)
    return root, headers


def to_do(deliveries: list[Delivery | None]) -> list[Delivery]:
    return [one for one in deliveries if one]


def test_a_delivery_that_comes_twice_is_worked_on_and_acked_once(store: Store) -> None:
    root, headers = handed_over(store, 3)
    inbox = Inbox(store.acker, name="mailer")
    first = inbox.receive([headers[0], headers[0], headers[1]])
    assert [one is None for one in first] == [False, True, False]
    inbox.ack(to_do(first))
    assert inbox.receive(headers[:2]) == [None, None]
    assert inbox.ack(to_do(first)).duplicates == 2
    assert store.is_pending(root)
    inbox.ack(to_do(inbox.receive(headers)))
    assert store.completed() == [root]
    assert inbox.receive(headers) == [None] * 3


def test_what_two_work_on_at_the_same_time_is_acked_once(store: Store) -> None:
    root, headers = handed_over(store, 2)
    inboxes = [Inbox(store.acker, name="mailer") for _ in range(2)]
    both = [to_do(one.receive(headers[:1])) for one in inboxes]
    for inbox, deliveries in zip(inboxes, both, strict=True):
        inbox.ack(deliveries)
    assert store.is_pending(root)
    inboxes[0].ack(to_do(inboxes[0].receive(headers)))
    assert store.completed() == [root]


def test_what_is_sent_on_is_waited_for_and_recognised_when_it_is_sent_again(store: Store) -> None:
    root, headers = handed_over(store, 1)
    inbox, last = Inbox(store.acker, name="mailer"), Inbox(store.acker, name="printer")
    sent: list[list[Anchors]] = []
    for _ in range(2):  # it died before its ack, and works on it again
        [delivery] = to_do(inbox.receive(headers))
        sent.append([delivery.send_on() for _ in range(3)])
    assert sent[0] == sent[1]
    assert len({one.to_bytes() for one in sent[0]}) == 3
    inbox.ack([delivery])
    last.ack(to_do(last.receive([*sent[0][:2], *sent[1][:2]])))
    assert store.is_pending(root)
    last.ack(to_do(last.receive(sent[1])))
    assert store.completed() == [root]


def test_two_programs_send_on_different_edges(store: Store) -> None:
    _, headers = handed_over(store, 1)
    sent = [to_do(Inbox(store.acker, name=name).receive(headers))[0].send_on() for name in ("a", "b")]
    assert sent[0] != sent[1]


def test_a_failure_has_the_name_of_the_program(store: Store) -> None:
    root, headers = handed_over(store, 2)
    inbox = Inbox(store.acker, name="mailer")
    deliveries = to_do(inbox.receive(headers))
    inbox.fail(deliveries[0], ValueError("no such address"), fatal=True)
    [failure] = store.failures()
    assert (failure.roots.tolist(), failure.component, failure.error) == (
        [root],
        "mailer",
        "ValueError: no such address",
    )
    assert failure.fatal
    assert inbox.receive(headers) == [None, None]
    assert inbox.ack(deliveries).late == 2


def test_what_is_in_no_tree_is_worked_on_as_often_as_it_comes(store: Store) -> None:
    inbox = Inbox(store.acker, name="mailer")
    deliveries = inbox.receive([b"", b""])
    assert None not in deliveries
    assert inbox.ack(to_do(deliveries)).applied == 0


def test_work_that_takes_long_keeps_its_messages_alive(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    root, headers = handed_over(store, 1)
    inbox, extended = Inbox(store.acker, name="mailer"), []

    def extend(roots: list[int]) -> int:
        extended.extend(roots)
        return len(roots)

    monkeypatch.setattr(store.acker, "extend", extend)
    monkeypatch.setattr(store.acker.clock, "wait_for", lambda event, timeout_s: bool(extended), raising=False)
    with inbox.keeping_alive(inbox.receive(headers)):
        pass
    assert extended == [root]
    assert np.uint64(root)


def test_the_trace_of_a_message_goes_through_the_program_and_its_failure_is_marked(store: Store, spans: Spans) -> None:
    root, headers = handed_over(store, 2)
    inbox, last = Inbox(store.acker, name="mailer"), Inbox(store.acker, name="printer")
    done, failed = to_do(inbox.receive([header + TRACE for header in headers]))
    with done.anchors.span("letter"), spans.provider.get_tracer("library").start_as_current_span("query"):
        sent = done.send_on()
    before = sent.trace
    [printed] = to_do(last.receive([sent]))
    assert sent.trace == before
    last.ack([printed])
    inbox.ack([done])
    assert store.is_pending(root)
    inbox.fail(failed, ValueError("no such address"), fatal=True)

    by_id = {span.context.span_id: span.name for span in spans.all()}
    assert sorted((by_id.get(one.parent.span_id, ""), one.name) for one in spans.all() if one.parent) == [
        ("", "mailer"),
        ("", "mailer"),
        ("letter", "printer"),
        ("letter", "query"),
        ("mailer", "letter"),
    ]
    assert spans.traces() == {int.from_bytes(TRACE[:16], "big")}
    assert [one.status.description for one in spans.named("mailer")] == [None, "ValueError: no such address"]
    assert [attribute(one, "fatal") for one in spans.named("mailer")] == [None, True]


def test_a_delivery_is_traced_only_where_somebody_traces(store: Store) -> None:
    _, [header] = handed_over(store, 1)
    [delivery] = to_do((inbox := Inbox(store.acker, name="mailer")).receive([header + TRACE]))
    assert delivery.send_on().trace == TRACE
    inbox.fail(delivery, "no")
