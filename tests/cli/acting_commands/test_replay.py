"""`redis-acker replay`: gives failed messages back to their source, each root once."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from redis_acker import Anchors, RetryPolicy, SpoutDriver
from redis_acker.retries.book import RetryBook
from redis_acker.spouts.iterable import IterableSpout
from tests.cli.acting_commands.shop import SPOUT, Shop, ids_of
from tests.waiting import wait_until


@pytest.fixture
def drained(shop: Shop, tmp_path: Path) -> Path:
    """Ten failures in a file."""
    out = tmp_path / "failed.jsonl"
    shop.start_failed([f"m{i}" for i in range(10)], attempts=[1 + i % 3 for i in range(10)])
    shop.succeed("drain", "--out", str(out))
    return out


EXPECTED = {f"m{i}": 1 + i % 3 for i in range(10)}


def test_a_file_is_replayed_once_with_its_attempts(shop: Shop, drained: Path) -> None:
    assert shop.succeed("replay", str(drained)) == "10 messages go back to the source.\n"
    assert shop.requested() == EXPECTED
    [first, *_] = RetryBook(shop.acker, SPOUT).load()["m1"].history
    assert (first.attempt, first.reason, first.component, first.error) == (2, "failed", "parse", "broken")
    again = shop.succeed("replay", str(drained), "--json")
    assert json.loads(again) == {
        "schema": 1,
        "kind": "replayed",
        "replayed": 0,
        "replayed_before": 10,
        "bad_lines": 0,
        "without_id": 0,
    }
    assert shop.requested() == EXPECTED


def test_lines_come_in_by_a_pipe_too(shop: Shop, drained: Path) -> None:
    some = "".join(drained.read_text().splitlines(keepends=True)[:4])
    assert shop.succeed("replay", stdin=some) == "4 messages go back to the source.\n"
    assert shop.succeed("replay", "-", stdin=drained.read_text()) == (
        "6 messages go back to the source. 4 messages were replayed before.\n"
    )
    assert shop.requested() == EXPECTED


def test_a_limit_and_a_rate_leave_the_rest_for_later(shop: Shop, drained: Path) -> None:
    assert shop.succeed("replay", str(drained), "--limit", "3", "--rate", "50") == "3 messages go back to the source.\n"
    assert len(shop.requested()) == 3
    shop.succeed("replay", str(drained))
    assert shop.requested() == EXPECTED


def test_straight_from_the_store_with_the_same_filters(shop: Shop) -> None:
    for together in (range(4), range(4, 10)):
        shop.start_failed([f"m{i}" for i in together], attempts=[1 + i % 3 for i in together])
        failed_ms = shop.acker.shards.time_ms(0)
        wait_until(lambda: shop.acker.shards.time_ms(0) > failed_ms)  # noqa: B023 - the oldest are taken first
    shop.start_failed(["other"], spout="other")
    assert shop.succeed("replay", "--from-store", "--reason", "timeout") == "0 messages go back to the source.\n"
    assert shop.succeed("replay", "--from-store", "--spout", SPOUT, "--limit", "4") == (
        "4 messages go back to the source.\n"
    )
    assert len(shop.requested()) == 4
    assert shop.succeed("replay", "--from-store", "--spout", SPOUT) == "6 messages go back to the source.\n"
    assert (shop.requested(), shop.requested("other")) == (EXPECTED, {})
    assert (shop.entries(), shop.withdrawn(), shop.entries("other")) == (0, 0, 1)


def test_roots_without_message_id_stay_in_the_store(shop: Shop) -> None:
    roots = shop.acker.allocate(SPOUT, 2)
    shop.acker.init(roots, [1, 2])
    shop.acker.fail(roots)
    assert shop.succeed("replay", "--from-store") == (
        "0 messages go back to the source. 2 roots without message id stay in the store.\n"
    )
    assert (shop.entries(), shop.withdrawn()) == (1, 0)
    ran = shop.run("replay", stdin=shop.succeed("drain"))
    assert ran.returncode == 1
    assert "Line 2 of standard input cannot be replayed: Root 0x" in ran.stderr
    assert "has no message id, so its source cannot find the message." in ran.stderr


def test_a_driver_that_runs_hands_the_message_to_its_source_again(shop: Shop) -> None:
    """From a failure nobody read to the completion of the next attempt, with the console script in between."""
    shop.start_failed([0], attempts=2)
    lines = shop.succeed("drain")
    seen: list[int] = []
    roots: list[int] = []

    class Router:
        def targets(self, stream: str, values: Sequence[Any]) -> list[Any]:
            return ["task"]

        def deliver(self, target: Any, values: Sequence[Any], stream: str, anchors: Anchors) -> None:
            [(root, edge)] = anchors.items()
            roots.append(root)
            seen.append(shop.acker.inspect(root).attempt or 0)
            if len(seen) > 1:
                shop.acker.ack([root], [edge])

    driver = SpoutDriver(
        IterableSpout(["a"]), shop.acker, Router(), name=SPOUT, retries=RetryPolicy(max_attempts=9, first_ms=1)
    )
    stop = threading.Event()
    thread = threading.Thread(target=driver.run, args=(stop,))
    thread.start()
    try:
        wait_until(lambda: seen == [1], 20)  # the source hands it out by itself; nobody acks it
        assert shop.succeed("replay", stdin=lines) == "1 message goes back to the source.\n"
        wait_until(lambda: RetryBook(shop.acker, SPOUT).load(requests=False).get(0), 20)
        shop.succeed("fail", hex(roots[-1]))
        wait_until(lambda: driver.counters.acked == 1, 20)
    finally:
        stop.set()
        thread.join()
    assert seen == [1, 4], "attempt 2 failed before, what was in work was the third"


# -- bad lines -----------------------------------------------------------------------------------------------------


def spoilt(drained: Path, **changes: Any) -> str:
    """The second line with some fields changed; None takes them out."""
    line = json.loads(drained.read_text().splitlines()[1])
    return json.dumps({name: value for name, value in {**line, **changes}.items() if value is not None})


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"schema": 2}, "has schema 2, but this version reads 1."),
        ({"kind": "pending"}, "is not a failure as `redis-acker drain` writes it."),
        ({"namespace": "other"}, "is from namespace 'other', not"),
        ({"attempt": "1"}, "needs attempt of type int, not '1'."),
        ({"attempt": 0}, "has attempt 0, which is not from 1 to 65534."),
        ({"entry": None}, "needs entry of type str, not None."),
        ({"root": "12x"}, "has an invalid root: '12x' is not 0x and 16 hex digits"),
        ({"message_id": [1]}, "has an invalid message id: A message id is a number, a text or"),
        ({"message_id": {"base64": "?"}}, "has an invalid message id: '?' is not base64"),
        ({"spout": "oders"}, "cannot be replayed: Namespace"),
        ({"at_ms": 1}, "failed more than 30 days ago"),
    ],
    ids=str,
)
def test_a_line_that_cannot_be_used_is_named_and_the_rest_is_replayed(
    shop: Shop, drained: Path, changes: dict[str, Any], why: str
) -> None:
    lines = drained.read_text().splitlines()
    lines[1] = spoilt(drained, **changes)
    ran = shop.run("replay", stdin="\n".join(["", *lines, ""]))
    assert ran.returncode == 1
    assert ran.stdout == "9 messages go back to the source. 1 line could not be used.\n"
    assert ran.stderr.startswith("Line 3 of standard input ")
    assert why in ran.stderr
    assert ran.stderr.count("\n") == 1
    assert len(shop.requested()) == 9


def test_a_file_that_is_cut_off_loses_its_last_line_alone(shop: Shop, drained: Path) -> None:
    drained.write_bytes(drained.read_bytes()[:-30])
    ran = shop.run("replay", str(drained))
    assert (ran.returncode, ran.stdout) == (1, "9 messages go back to the source. 1 line could not be used.\n")
    assert ran.stderr.startswith(f"Line 10 of {drained} is cut off, it ends with ")


def test_a_file_of_something_else_is_named_line_by_line(shop: Shop, tmp_path: Path) -> None:
    path = tmp_path / "other"
    path.write_bytes(b"hello\n\xff\xfe\n[1]\n")
    ran = shop.run("replay", str(path))
    assert ran.returncode == 1
    assert ran.stdout == "0 messages go back to the source. 3 lines could not be used.\n"
    assert [line.split(" is ")[0] for line in ran.stderr.splitlines()] == [f"Line {n} of {path}" for n in (1, 2, 3)]


def test_a_file_that_cannot_be_read_is_one_sentence(shop: Shop, tmp_path: Path) -> None:
    ran = shop.run("replay", str(tmp_path / "none"))
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "cannot be read (No such file or directory)" in ran.stderr
    assert (shop.run("replay", str(tmp_path)).returncode) == 2


@pytest.mark.parametrize("args", [("f", "--from-store"), ("--reason", "failed"), ("--force",), ("--spout", "orders")])
def test_options_that_do_not_go_together_are_refused(shop: Shop, args: tuple[str, ...]) -> None:
    ran = shop.run("replay", *args)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "--from-store" in ran.stderr


def test_ids_of_every_type_go_round(shop: Shop) -> None:
    ids: dict[str, Any] = {"numbers": -7, "texts": "zwölf", "bytes": b"\xff\x00"}
    for spout, message_id in ids.items():
        shop.start_failed([message_id], spout=spout)
    lines = shop.succeed("drain")
    assert len(ids_of(lines)) == 3
    shop.succeed("replay", stdin=lines)
    assert {spout: shop.requested(spout) for spout in ids} == {spout: {one: 1} for spout, one in ids.items()}
