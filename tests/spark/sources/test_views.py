"""What a namespace holds, as DataFrames: the same that the command line shows."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from redis_acker.retries.book import DeadLetter, FailedAttempt, Retry, RetryBook
from spark_integration import register
from tests.backends import Servers, make_backend
from tests.cli.looking import Market

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture
def market(servers: Servers, namespace: str) -> Iterator[Market]:
    """In three shards, with blocks of one; a message that waits for its next attempt, and two dead letters."""
    backend = make_backend("redis-7.0", servers)
    assert isinstance(backend.target, str)
    found = Market(backend.target, namespace, shards=3, block_size=1)
    book = RetryBook(found.acker, "orders")
    tried = [FailedAttempt(1, "failed", "split", "no comma", 1_000), FailedAttempt(2, "timeout", "", "", 2_000)]
    book.note({"orders-9": Retry(tried, 5_000), "orders-8": Retry()})
    book.bury(DeadLetter("x", "orders", tried, False, ["a", 1]), DeadLetter(7, "orders", tried[:1], True, None))
    yield found
    found.acker.close()
    backend.delete_keys(namespace)


@pytest.fixture(params=["filters are pushed down", "filters are not pushed down"])
def session(request: pytest.FixtureRequest, spark: SparkSession, url: str) -> Iterator[SparkSession]:
    spark.conf.set(PUSHDOWN, str(request.param == "filters are pushed down").lower())
    register(spark, url=url)
    yield spark
    spark.conf.unset(PUSHDOWN)
    register(spark, url=url)


def view(spark: SparkSession, name: str, market: Market, **options: str) -> DataFrame:
    reader = spark.read.format("redis_acker").options(view=name, namespace=market.namespace, **options)
    return reader.load()


def as_dicts(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict() for row in frame.collect()]


def test_pending_roots_are_those_of_the_command_line(session: SparkSession, market: Market) -> None:
    def known(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        names = ("root", "spout", "message_id", "attempt", "shard", "bucket")
        return sorted(({name: row[name] for name in names} for row in rows), key=lambda row: str(row["root"]))

    frame = view(session, "pending", market)
    assert known(as_dicts(frame)) == known(market.lines("pending"))
    assert frame.rdd.getNumPartitions() == 3
    orders = known(market.lines("pending", "--spout", "orders"))
    assert known(as_dicts(frame.where("spout = 'orders'"))) == orders
    assert known(as_dicts(view(session, "pending", market, spout="orders"))) == orders
    assert known(as_dicts(frame.where("shard = 1"))) == known(market.lines("pending", "--shard", "1"))
    assert frame.where("spout = 'nobody'").collect() == []
    assert frame.where("age_ms >= 3600000").collect() == []
    assert len(frame.where("age_ms > -1").collect()) == 16
    assert view(session, "pending", market, min_age_ms="3600000").collect() == []
    assert view(session, "pending", market, spout="orders").where("spout = 'payments'").collect() == []


def test_failed_messages_are_those_that_nobody_has_read_and_those_that_wait(
    session: SparkSession, market: Market
) -> None:
    found = as_dicts(view(session, "failed", market).orderBy("state", "message_id"))
    times = [row.pop("at_ms") for row in found]
    for row in found[:2]:
        assert row.pop("root").startswith("0x")
        assert row.pop("shard") in range(3)

    unread = {"state": "unread", "spout": "orders", "reason": "failed", "component": "split", "attempt": 1}
    assert found == [
        {**unread, "message_id": "orders-5", "error": "no \x1b[31mcomma", "fatal": False, "due_ms": None},
        {**unread, "message_id": "orders-6", "error": "no \x1b[31mcomma", "fatal": False, "due_ms": None},
        {
            "state": "waiting",
            "spout": "orders",
            "message_id": "orders-9",
            "attempt": 2,
            "reason": "timeout",
            "component": "",
            "error": "",
            "fatal": False,
            "due_ms": 5_000,
            "root": None,
            "shard": 0,
        },
    ]
    assert times[0] > times[2] == 2_000
    old = view(session, "failed", market, min_age_ms="3600000")
    assert [row.message_id for row in old.collect()] == ["orders-9"]
    assert view(session, "failed", market, spout="payments").collect() == []


def test_dead_letters_are_those_of_the_command_line(session: SparkSession, market: Market) -> None:
    letters = {str(one["message_id"]): one for one in market.lines("dead", "list")}
    found = {row.message_id: row for row in view(session, "dead", market).collect()}

    assert set(found) == set(letters) == {"x", "7"}
    for name, letter in letters.items():
        row = found[name]
        assert json.loads(row.history) == letter["history"]
        assert (json.loads(row.payload) if row.payload else None) == letter["payload"]
        assert (row.spout, row.fatal, row.stream, row.is_readable) == (
            letter["spout"],
            letter["fatal"],
            letter["stream"],
            letter["is_readable"],
        )
        assert (row.attempt, row.reason, row.at_ms) == tuple(
            letter["history"][-1][name] for name in ("attempt", "reason", "at_ms")
        )
    assert view(session, "dead", market).where("spout = 'payments'").collect() == []


def test_counters_are_those_of_the_command_line(session: SparkSession, market: Market) -> None:
    counted = {one["name"]: one for one in market.document("stats", "--interval", "0")["spouts"]}
    found = {row.spout: row.asDict() for row in view(session, "stats", market).collect()}

    assert set(found) == set(counted) == {"orders", "payments"}
    for name, row in found.items():
        assert {key: value for key, value in row.items() if key not in ("spout", "oldest_ms")} == {
            key: counted[name][key] for key in row if key not in ("spout", "oldest_ms")
        }
    assert found["orders"]["oldest_ms"] >= counted["orders"]["oldest_ms"]
    assert [row.spout for row in view(session, "stats", market, spout="orders").collect()] == ["orders"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"view": "nothing"}, "The option 'view' is one of pending, failed, dead, stats, not 'nothing'"),
        ({"view": "pending", "spout": "nobody"}, "has no spout 'nobody': it has ['orders', 'payments']"),
        ({"view": "pending", "min_age_ms": "old"}, "The option 'min_age_ms' is a whole number from 0 to"),
        ({"view": "stats", "min_age_ms": "1"}, "counters have no age"),
        ({"view": "pending", "namespace": "no such thing"}, "A namespace is 1 to 64 letters"),
        ({"view": "pending", "namespace": "nobody-has-this"}, "nobody-has-this"),
        ({"view": "pending", "stream": "orders"}, "There is no option 'stream' for a view: there are min_age_ms"),
        ({}, "The option 'view' is missing"),
    ],
)
def test_a_view_that_is_not_there_is_refused(
    spark: SparkSession, url: str, market: Market, options: dict[str, str], sentence: str
) -> None:
    register(spark, url=url)
    with pytest.raises(Exception) as refused:  # noqa: PT011 - of Spark's, with ours inside
        spark.read.format("redis_acker").options(**{"namespace": market.namespace, **options}).load().collect()
    assert sentence in str(refused.value)
