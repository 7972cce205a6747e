"""`redis-acker inspect`: all that is known of one root."""

import re

import pytest

from redis_acker import new_edge
from redis_acker.retries.book import DeadLetter, FailedAttempt, Retry, RetryBook
from tests.cli.looking import Market
from tests.cli.runs import redis_acker


def fields(text: str) -> dict[str, str]:
    """Names and values of the lines before the first empty one."""
    return dict(re.split(r"\s{2,}", line, maxsplit=1) for line in text.partition("\n\n")[0].splitlines())


def test_a_pending_root_is_shown_with_all_that_is_known(market: Market) -> None:
    root = int(market.roots[7])
    shown = fields(market.text("inspect", str(root)))

    assert shown["root"] == f"0x{root:016x}  ({root})"
    assert shown["state"] == "pending: waits for its final event"
    assert (shown["spout"], shown["message id"], shown["attempt"]) == ("orders", "orders-7", "1")
    assert shown["ack val"] == f"0x{int(market.edges[7]):016x}"
    assert shown["bucket"] == "0 of 0 to 2 (nursery)"
    assert re.fullmatch("in (15m 0s|14m [0-9]+s)", shown["expires"])


def test_programs_get_one_object(market: Market) -> None:
    found = market.document("inspect", hex(int(market.roots[7])))

    assert 0 < found.pop("expires_in_ms") <= 900_000
    assert found.pop("age_ms") >= 0
    assert found == {
        "schema": 1,
        "kind": "root",
        "root": f"0x{int(market.roots[7]):016x}",
        "state": "pending",
        "shard": 0,
        "spout": "orders",
        "message_id": "orders-7",
        "attempt": 1,
        "ack_val": f"0x{int(market.edges[7]):016x}",
        "bucket": 0,
        "event": None,
        "history": [],
        "is_dead": False,
    }


@pytest.mark.parametrize("form", ["{0}", "0x{0:x}", "0X{0:X}", "{0:016x}", "{1}"])
def test_a_root_may_be_written_in_many_ways(market: Market, form: str) -> None:
    top_bit = market.acker.allocate("spout-with-a-high-number", 1)  # the spout is in the top bits
    root = max(int(market.roots[7]), int(top_bit[0])) | 0xA  # without a letter, 16 digits are decimal

    found = market.run("inspect", form.format(root, root - (1 << 64) if root >= 1 << 63 else root), "--json")

    assert f'"root": "0x{root:016x}"' in found.stdout


def test_signed_forms_stand_for_the_same_64_bits() -> None:
    for signed, unsigned in (("-1", "0xffffffffffffffff"), ("-9223372036854775808", "0x8000000000000000")):
        ran = redis_acker("inspect", signed, "--json", REDIS_ACKER_URL="redis://127.0.0.1:1")
        assert ran.returncode == 3, unsigned  # the root was understood: only the server is missing


@pytest.mark.parametrize("root", ["zz", "0x", "12 34", "1.5", "0xg", "6c4066be8d2d640", "", "--5"])
def test_what_is_no_root_is_explained_in_one_line(root: str) -> None:
    ran = redis_acker("inspect", root, REDIS_ACKER_URL="redis://127.0.0.1:1")

    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.count("\n") == 1
    assert "root" in ran.stderr or "--5" in ran.stderr


@pytest.mark.parametrize("root", [1 << 64, -(1 << 63) - 1])
def test_a_number_of_more_than_64_bits_is_no_root(root: int) -> None:
    ran = redis_acker("inspect", "--", str(root), REDIS_ACKER_URL="redis://127.0.0.1:1")

    assert (ran.returncode, ran.stdout) == (2, "")
    assert "does not fit in 64 bits" in ran.stderr


def test_a_root_that_failed_is_shown_with_component_and_error(market: Market) -> None:
    shown = fields(market.text("inspect", str(market.roots[5])))

    assert shown["state"] == "finished: had its final event"
    assert shown["final event"].startswith("failed at ")
    assert (shown["message id"], shown["attempt"]) == ("orders-5", "1")
    assert (shown["component"], shown["error"]) == ("split", "no \\x1b[31mcomma")
    event = market.document("inspect", str(market.roots[6]))["event"]
    assert (event["outcome"], event["component"], event["error"]) == ("failed", "split", "no \x1b[31mcomma")


def test_a_root_that_completed_is_shown_while_its_event_is_in_the_stream_and_after(market: Market) -> None:
    assert market.document("inspect", str(market.roots[0]))["event"]["outcome"] == "completed"
    with market.acker.completions("orders") as completions:
        assert sum(len(one) for one in completions.consume()) == 5

    shown = fields(market.text("inspect", str(market.roots[0])))
    assert shown["final event"] == "no longer in a stream: it was read, or not asked for"
    assert market.document("inspect", str(market.roots[0]))["event"] is None


def test_an_event_behind_many_newer_ones_is_found(market: Market) -> None:
    for root in market.start("orders", 130):
        market.acker.fail(root)

    assert market.document("inspect", str(market.roots[5]))["event"]["component"] == "split"


def test_an_unknown_root_is_said_to_be_unknown_with_exit_code_4(market: Market) -> None:
    never = str(market.acker.allocate("orders")[0])
    ran = market.run("inspect", never)

    assert (ran.returncode, ran.stderr) == (4, "")
    assert fields(ran.stdout)["state"] == "unknown: never seen here, or finished and forgotten"
    ran = market.run("inspect", never, "--json")
    assert ran.returncode == 4
    assert '"state": "unknown"' in ran.stdout


def test_an_orphan_is_shown_with_its_ack_val(market: Market) -> None:
    [root], edge = market.acker.allocate("orders"), new_edge()
    market.acker.ack(root, edge)

    shown = fields(market.text("inspect", str(root)))
    assert shown["state"] == "orphan: has acks or fails, but no init yet"
    assert shown["ack val"] == f"0x{edge:016x}"


def test_earlier_attempts_are_shown_with_a_replayed_root(market: Market) -> None:
    history = [
        FailedAttempt(1, "failed", "split", "no comma", 1_700_000_000_000),
        FailedAttempt(2, "timeout", "", "", 1_700_000_060_000),
    ]
    RetryBook(market.acker, "orders").note({"orders-9": Retry(history, 0)})

    table = market.text("inspect", str(market.roots[9])).partition("\n\n")[2].splitlines()
    assert table[1].split() == ["1", "failed", "2023-11-14", "22:13:20Z", "split", "no", "comma"]
    assert table[2].split() == ["2", "timeout", "2023-11-14", "22:14:20Z", "-", "-"]
    found = market.document("inspect", str(market.roots[9]))
    assert [one["attempt"] for one in found["history"]] == [1, 2]
    assert found["is_dead"] is False


def test_the_root_of_a_dead_letter_is_said_to_be_one(market: Market) -> None:
    history = [FailedAttempt(1, "failed", "split", "no comma", 1_700_000_000_000)]
    RetryBook(market.acker, "orders").bury(DeadLetter("orders-5", "orders", history, False, None))

    assert fields(market.text("inspect", str(market.roots[5])))["dead letter"].startswith("yes")
    assert market.document("inspect", str(market.roots[5]))["is_dead"] is True
