"""JsonLinesSpout: lines, checkpoints and files that change."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from redis_acker import Acker, AckerError, TaskContext
from redis_acker.errors import BadInput
from redis_acker.spouts.checkpoint import Ranges
from redis_acker.spouts.jsonl import JsonLinesSpout
from tests.spouts.kit import Book, Work, dead_letters, run_until_idle, running
from tests.spouts.places import FilePlace
from tests.waiting import wait_until


def write(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def new_spout(place: FilePlace, **options: Any) -> JsonLinesSpout:
    return JsonLinesSpout(place.path, checkpoint=place.checkpoint, **options)


def opened(place: FilePlace, task: int = 0, tasks: int = 1, **options: Any) -> JsonLinesSpout:
    spout = new_spout(place, **options)
    spout.open(TaskContext("source", task, tasks))
    return spout


def values_of(spout: JsonLinesSpout, limit: int = 100) -> list[Any]:
    return [message.values[0] for message in spout.next_batch(limit)]


def finish(spout: JsonLinesSpout, message_ids: Iterable[int]) -> None:
    for one in message_ids:
        spout.ack(one)
    spout.commit()


def test_a_line_is_one_value_and_its_id_is_its_place(file_place: FilePlace) -> None:
    write(file_place.path, '{"a": [1, "ü"]}\n\n  \n"text"\n17\n')

    found = opened(file_place).next_batch(100)

    assert [(one.id, list(one.values)) for one in found] == [(0, [{"a": [1, "ü"]}]), (21, ["text"]), (28, [17])]


def test_the_last_line_needs_no_newline(file_place: FilePlace, acker: Acker) -> None:
    write(file_place.path, "1\n2")
    book = Book()

    run_until_idle(acker, new_spout(file_place), Work(book))

    assert book.counts() == {1: 1, 2: 1}
    assert file_place.unfinished() == 0


def test_an_empty_file_has_no_messages(file_place: FilePlace, acker: Acker) -> None:
    file_place.path.touch()
    book = Book()

    run_until_idle(acker, new_spout(file_place), Work(book))

    assert len(book) == 0


@pytest.mark.parametrize(
    ("line", "payload"),
    [
        (b"{bad", ["{bad\n"]),
        (b'{"a": 1', ['{"a": 1\n']),
        (b"\xff", ["\\xff\n"]),
        (b"1 2", ["1 2\n"]),
        (b"[" * 100_000, None),
    ],
)
def test_a_line_that_is_not_json_is_a_dead_letter_and_stops_no_other(
    file_place: FilePlace, acker: Acker, line: bytes, payload: list[str] | None
) -> None:
    file_place.path.write_bytes(b"1\n" + line + b"\n2\n")
    book = Book()

    run_until_idle(acker, new_spout(file_place), Work(book))

    assert book.counts() == {1: 1, 2: 1}
    [letter] = dead_letters(acker)
    assert (letter.message_id, letter.fatal, len(letter.history)) == (2, True, 1)
    assert letter.history[0].error.startswith(f"{file_place.path} at byte 2 cannot be read: ")
    assert letter.payload == payload
    assert file_place.unfinished() == 0


def test_a_followed_file_may_grow(file_place: FilePlace, acker: Acker) -> None:
    write(file_place.path, "1\n")
    book = Book()
    with running(acker, new_spout(file_place, follow=True), Work(book)) as runner:
        wait_until(lambda: book.counts() == {1: 1})
        write(file_place.path, '"half ')
        assert runner.wait_until_idle(timeout_s=10)
        write(file_place.path, 'a line"\n3\n')
        wait_until(lambda: book.counts() == {1: 1, "half a line": 1, 3: 1})
        assert runner.wait_until_idle(timeout_s=10)

    assert file_place.unfinished() == 0
    assert dead_letters(acker) == []


def test_a_file_that_is_not_followed_is_read_to_the_end_it_had_and_the_next_run_goes_on(file_place: FilePlace) -> None:
    write(file_place.path, "1\n2\n")
    spout = opened(file_place)
    write(file_place.path, "3\n")
    assert values_of(spout) == [1, 2]
    finish(spout, [0, 2])

    assert values_of(opened(file_place)) == [3]


def test_lines_that_were_finished_out_of_order_are_not_handed_out_again(file_place: FilePlace) -> None:
    write(file_place.path, "".join(f"{number}\n" for number in range(10)))
    spout = opened(file_place)
    assert values_of(spout) == list(range(10))

    finish(spout, [0, 4, 6, 18])

    assert json.loads(file_place.checkpoint.read_text())["finished"] == [[0, 2], [4, 8], [18, 20]]
    assert values_of(opened(file_place)) == [1, 4, 5, 6, 7, 8]


def test_the_checkpoint_stays_small_while_one_line_is_unfinished(file_place: FilePlace) -> None:
    write(file_place.path, "".join(f"{number:05}\n".replace("0", "1") for number in range(10_000)))
    spout = opened(file_place)
    ids = [int(one.id or 0) for one in spout.next_batch(100_000)]

    finish(spout, ids[1:])

    assert json.loads(file_place.checkpoint.read_text())["finished"] == [[6, 60_000]]


def test_acks_of_what_was_handed_out_before_a_restart_count(file_place: FilePlace) -> None:
    write(file_place.path, "1\n2\n3\n")
    values_of(opened(file_place))
    spout = opened(file_place)

    finish(spout, [2, 2, 0])
    spout.fail(4)

    assert values_of(spout) == [3]
    finish(spout, [4, 2])
    assert file_place.unfinished() == 0
    assert json.loads(file_place.checkpoint.read_text())["finished"] == [[0, 6]]


def test_a_line_that_is_replayed_after_a_restart_is_handed_out_once(file_place: FilePlace) -> None:
    write(file_place.path, "1\n2\n3\n")
    spout = opened(file_place)
    spout.fail(4)

    assert values_of(spout, 1) == [3]
    assert values_of(spout) == [1, 2]


def test_tasks_have_disjoint_lines_and_checkpoints(file_place: FilePlace) -> None:
    file_place.fill(range(100))
    tasks = [opened(file_place, task, 3, fields=("number",)) for task in range(3)]
    batches = [task.next_batch(1000) for task in tasks]
    numbers = [[one.values[0] for one in batch] for batch in batches]

    assert sorted(one for some in numbers for one in some) == list(range(100))
    assert min(map(len, numbers)) > 20
    finish(tasks[0], [int(one.id or 0) for one in batches[0]])
    finish(tasks[1], [int(one.id or 0) for one in batches[1][:-1]])
    assert values_of(opened(file_place, 0, 3, fields=("number",))) == []
    assert values_of(opened(file_place, 1, 3, fields=("number",))) == [numbers[1][-1]]
    assert values_of(opened(file_place, 2, 3, fields=("number",))) == numbers[2]


def test_another_number_of_tasks_is_refused(file_place: FilePlace) -> None:
    file_place.fill(range(10))
    for task in range(2):
        opened(file_place, task, 2)

    for task, tasks in ((0, 1), (0, 3), (2, 3)):
        with pytest.raises(BadInput, match=f"was written with parallelism 2, not {tasks}: keep that"):
            opened(file_place, task, tasks)


def test_a_checkpoint_of_another_file_is_refused(file_place: FilePlace, tmp_path: Path) -> None:
    file_place.fill(range(10))
    opened(file_place)
    for content in ("1\n" * 1000, ""):
        (tmp_path / "other.jsonl").write_text(content)

        with pytest.raises(BadInput, match="belongs to another file, or lines were removed"):
            JsonLinesSpout(tmp_path / "other.jsonl", checkpoint=file_place.checkpoint).open(TaskContext("s", 0, 1))


def test_a_file_that_was_cut_behind_its_head_is_refused(file_place: FilePlace) -> None:
    file_place.fill(range(100))
    spout = opened(file_place)
    finish(spout, [int(one.id or 0) for one in spout.next_batch(1000)])
    file_place.path.write_bytes(file_place.path.read_bytes()[:2000])

    with pytest.raises(BadInput, match="lines were removed"):
        opened(file_place)


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"\xff\xfe", b'{"tasks": 1}'])
def test_a_checkpoint_that_is_none_is_refused(file_place: FilePlace, content: bytes) -> None:
    file_place.fill([1])
    file_place.checkpoint.write_bytes(content)

    with pytest.raises(BadInput, match="is not a checkpoint of a JSON lines file"):
        opened(file_place)
    assert file_place.checkpoint.read_bytes() == content


def test_a_half_written_checkpoint_is_left_aside(file_place: FilePlace) -> None:
    write(file_place.path, "1\n2\n")
    spout = opened(file_place)
    values_of(spout)
    finish(spout, [0])
    Path(f"{file_place.checkpoint}.new").write_text('{"tasks": 1, "fini')

    assert values_of(opened(file_place)) == [2]


def test_a_followed_file_that_is_replaced_is_noticed(file_place: FilePlace) -> None:
    write(file_place.path, "1\n")
    spout = opened(file_place, follow=True)
    assert values_of(spout) == [1]
    file_place.path.rename(file_place.path.with_suffix(".old"))

    with pytest.raises(BadInput, match="can no longer be read"):
        spout.next_batch(1)
    write(file_place.path, "5\n6\n7\n")
    with pytest.raises(BadInput, match="was replaced or truncated"):
        spout.next_batch(1)


def test_a_file_that_is_missing_or_none_is_named(file_place: FilePlace, tmp_path: Path, acker: Acker) -> None:
    for path, why in ((file_place.path, "No such file or directory"), (tmp_path, "Is a directory")):
        spout = JsonLinesSpout(path, checkpoint=file_place.checkpoint)
        with (
            pytest.raises(BadInput, match=f"^{path} cannot be read \\({why}\\): name a file of JSON lines.$"),
            running(acker, spout, Work(Book())) as runner,
        ):
            runner.wait_until_idle(timeout_s=10)


def test_a_checkpoint_that_cannot_be_written_is_noticed_before_work_begins(
    file_place: FilePlace, tmp_path: Path
) -> None:
    file_place.fill([1])
    spout = JsonLinesSpout(file_place.path, checkpoint=tmp_path / "missing" / "checkpoint")

    with pytest.raises(AckerError, match="checkpoint cannot be written"):
        spout.open(TaskContext("s", 0, 1))


def test_ranges_that_touch_become_one() -> None:
    ranges = Ranges([(0, 2), (4, 6), (8, 9)])
    ranges.add(2, 4)

    assert ranges.to_list() == [(0, 6), (8, 9)]
    assert (5 in ranges, 6 in ranges, 8 in ranges, 9 in ranges) == (True, False, True, False)
    assert (ranges.end_of(0), ranges.end_of(4), ranges.end_of(8)) == (6, 6, 9)
