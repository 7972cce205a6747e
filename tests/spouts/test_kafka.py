"""Kafka: offsets, gaps, partitions that move, and what cannot be read. Over TCP, against the mock of librdkafka."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest

from redis_acker import Acker, Anchors, TaskContext
from redis_acker.errors import BadInput, ServerUnavailable
from redis_acker.spouts.kafka import KafkaSpout, anchor_headers, anchors_in
from redis_acker.spouts.offsets import MOST_CHARACTERS, FinishedOffsets
from tests.kafka import Kafka
from tests.spouts.kit import Book, Keep, Work, ack, dead_letters, run_until_idle, running
from tests.spouts.places import QUICK_GROUPS, TopicPlace
from tests.waiting import wait_until


def test_what_is_complete_beyond_a_gap_is_not_processed_again_after_a_restart(
    topic_place: TopicPlace, acker: Acker
) -> None:
    topic_place.fill(range(20))
    bolt = Keep(Book())
    with running(acker, topic_place.spout(), bolt) as runner:
        wait_until(lambda: len(bolt.book) == 20)
        ack(acker, [one for one in bolt.tuples if one[0] not in (3, 11)])
        wait_until(lambda: runner.drivers[0].counters.acked == 18)
    assert topic_place.unfinished() == 20 - 3, "no offset beyond the lowest unfinished message is committed"
    acker.fail([root for one in bolt.tuples for root in one.anchors])
    book = Book()

    run_until_idle(acker, topic_place.spout(), Work(book))

    assert book.counts() == {3: 1, 11: 1}
    assert topic_place.unfinished() == 0


def test_what_an_earlier_driver_could_not_commit_is_committed_before_the_store_forgets_it(
    kafka: Kafka, namespace: str
) -> None:
    """This driver learns of it before Kafka has assigned any partition, and may be killed before it is handed out."""
    places = kafka.publish(namespace, [b"0", b"1", b"2"])
    adopting, after = _spout(kafka, namespace), _spout(kafka, namespace)
    adopting.open(_context())
    for place in places[:2]:
        adopting.ack(place)
    wait_until(lambda: _is_committed(adopting))
    adopting.close()
    after.open(_context())
    handed_out: list[Any] = []

    def has_last() -> bool:
        with suppress(ServerUnavailable):
            handed_out.extend(one.id for one in after.next_batch(10))
        return places[2] in handed_out

    wait_until(has_last)
    assert handed_out == places[2:]
    after.close()


def test_a_second_group_gets_every_message(kafka: Kafka, topic_place: TopicPlace, acker: Acker) -> None:
    topic_place.fill(range(10))
    run_until_idle(acker, topic_place.spout(), Work(Book()))
    book = Book()

    run_until_idle(acker, _spout(kafka, topic_place.topic, group="another"), Work(book))

    assert sorted(json.loads(one)["number"] for one in book.counts()) == list(range(10))


def test_a_message_that_cannot_be_decoded_is_a_dead_letter(kafka: Kafka, namespace: str, acker: Acker) -> None:
    kafka.publish(namespace, [b"1", b"\xff", b"3"])
    book = Book()

    run_until_idle(acker, _spout(kafka, namespace), Work(book))

    assert sorted(book.counts()) == ["1", "3"]
    [letter] = dead_letters(acker)
    assert "cannot be read: UnicodeDecodeError" in letter.history[0].error


def test_anchors_travel_in_headers() -> None:
    anchors = Anchors({1 << 63: 5, 7: 1 << 63})
    assert anchors_in([("other", b"x"), *anchor_headers(anchors)]) == anchors
    assert anchors_in(None) == Anchors()


def test_a_cluster_that_does_not_answer_is_named() -> None:
    spout = KafkaSpout("127.0.0.1:1", "topic", group="g")
    spout.open(_context())
    with pytest.raises(ServerUnavailable, match=r"Topic 'topic' of 127\.0\.0\.1:1 cannot be read right now: .*refused"):
        wait_until(lambda: spout.next_batch(1))
    spout.close()


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"group.id": "x"}, "KafkaSpout sets 'group.id' itself: leave it out of config."),
        ({"no.such": 1}, 'Kafka does not take the settings of this spout: No such configuration property: "no.such".'),
    ],
)
def test_wrong_settings_are_refused(config: dict[str, Any], why: str) -> None:
    with pytest.raises(BadInput) as refused:
        KafkaSpout("127.0.0.1:1", "topic", group="g", config=config).open(_context())
    assert str(refused.value) == why


def test_offsets_that_are_finished_survive_as_text() -> None:
    found = FinishedOffsets(100)
    for offset in (100, 101, 105, 107, 108):
        found.add(offset)
    again = FinishedOffsets.from_text(found.first_unfinished, found.to_text())
    assert (again.first_unfinished, again.to_text()) == (102, "acker1 3+1 1+2")
    assert [one for one in range(90, 120) if one not in again] == [102, 103, 104, 106, *range(109, 120)]
    again.add(102)
    assert again.first_unfinished == 103


def test_a_commit_carries_as_many_gaps_as_there_is_room_for() -> None:
    found = FinishedOffsets(0)
    for offset in range(1, 10_000, 2):
        found.add(offset)
    text = found.to_text()
    assert MOST_CHARACTERS - 10 < len(text) <= MOST_CHARACTERS
    again = FinishedOffsets.from_text(0, text)
    assert all(offset not in again for offset in range(0, 10_000, 2))
    assert 1 in again
    assert 9_999 not in again


@pytest.mark.parametrize(
    "text", ["theirs", "acker1 1", "acker1 -1+2", "acker2 1+1", "acker1 1+1 x", f"acker1 {9**30}+1"]
)
def test_metadata_of_another_program_is_ignored(text: str, caplog: pytest.LogCaptureFixture) -> None:
    found = FinishedOffsets.from_text(5, text)
    assert (found.first_unfinished, 6 in found) == (5, False)
    assert "metadata of another program, which is ignored" in caplog.text


def test_offsets_without_a_message_leave_no_gap() -> None:
    spout = KafkaSpout("127.0.0.1:1", "topic", group="g")
    spout.open(_context())
    spout._on_assign(_Assigned(), [])  # type: ignore[arg-type]
    [partition] = (spout._partitions or {}).values()
    for offset in (0, 4, 5):  # a compacted topic, or the end of a transaction
        spout._accept(_Record(offset), partition)
        spout.ack(f"0:{offset}")
    assert partition.finished.first_unfinished == 6
    spout.close()


def test_a_message_is_handed_out_with_the_anchors_in_its_header() -> None:
    spout = KafkaSpout("127.0.0.1:1", "topic", group="g")
    spout.open(_context())
    spout._on_assign(_Assigned(), [])  # type: ignore[arg-type]
    [partition] = (spout._partitions or {}).values()
    anchors = Anchors({7: 8})
    message = spout._accept(_Record(0, anchor_headers(anchors)), partition)
    assert message
    assert message.anchors == anchors.to_bytes()
    spout.close()


class _Record:
    def __init__(self, offset: int, headers: list[tuple[str, bytes]] | None = None) -> None:
        self.offset, self.partition, self.value = (lambda: offset), (lambda: 0), (lambda: b"x")
        self.headers = lambda: headers


class _Assigned:
    """A consumer that owns partition 0, of which nothing is committed."""

    def committed(self, partitions: list[Any], timeout: float) -> list[Any]:
        from confluent_kafka import TopicPartition

        return [TopicPartition("topic", 0, -1001)]

    def get_watermark_offsets(self, partition: Any, timeout: float) -> tuple[int, int]:
        return 0, 6

    def assign(self, partitions: list[Any]) -> None: ...


def _spout(kafka: Kafka, topic: str, group: str = "g") -> KafkaSpout:
    return KafkaSpout(kafka.servers, topic, group=group, config=QUICK_GROUPS)


def _is_committed(spout: KafkaSpout) -> bool:
    try:
        spout.commit()
    except ServerUnavailable:
        return False
    return True


def _context() -> TaskContext:
    return TaskContext("source", 0, 1)
