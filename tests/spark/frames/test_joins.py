"""Rows of several messages: a row that fails fails all of them, and no other."""

import itertools
import random

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from redis_acker import Acker
from spark_integration import track
from spark_integration.frames.frame import TrackedFrame
from tests.spark.frames.books import books
from tests.spark.frames.conftest import AT_ONCE, MakeFrame

SPOUTS = ("customers", "orders", "payments")


def frames(spark: SparkSession, acker: Acker, rows: dict[str, list[tuple[str, int]]]) -> list[TrackedFrame]:
    """One tracked frame for each spout, with a message id and a key to join by."""
    return [
        track(
            spark.createDataFrame(rows[spout], f"{spout} string, key int"),
            acker=acker,
            spout=spout,
            message_id=spout,
            retries=AT_ONCE,
        )
        for spout in SPOUTS
    ]


def test_a_three_way_join_agrees_with_the_model(spark: SparkSession, acker: Acker) -> None:
    """The model: a joined row that is bad fails the three messages it is made of, everything else completes."""
    draw = random.Random(11)
    rows = {spout: [(f"{spout}-{i}", draw.randrange(40)) for i in range(200)] for spout in SPOUTS}
    bad = {f"payments-{i}" for i in draw.sample(range(200), 4)}
    expected: dict[str, set[str]] = {spout: set() for spout in SPOUTS}
    for combination in itertools.product(*(rows[spout] for spout in SPOUTS)):
        if len({key for _, key in combination}) == 1 and combination[2][0] in bad:
            for spout, (message_id, _) in zip(SPOUTS, combination, strict=True):
                expected[spout].add(message_id)
    assert all(expected.values())
    customers, orders, payments = frames(spark, acker, rows)

    def check(row: Row) -> Row:
        if row.payments in bad:
            raise ValueError(row.payments)
        return row

    joined = customers.join(orders, "key").join(payments, "key")
    summary = joined.map(check, joined.schema).sink(lambda batch: None)

    failed = {spout: {one.message_id for one in summary.failures if one.spout == spout} for spout in SPOUTS}
    assert failed == expected
    for spout in SPOUTS:
        assert books(acker, spout) == (200, 200 - len(expected[spout]), len(expected[spout]), 0)


@pytest.mark.parametrize(
    ("how", "failing"),
    [
        ("inner", {"customers-1", "orders-1"}),
        ("left", {"customers-0", "customers-1", "orders-1"}),
        ("right", {"customers-1", "orders-1", "orders-2"}),
        ("full", {"customers-0", "customers-1", "orders-1", "orders-2"}),
        ("left_semi", {"customers-1"}),
        ("left_anti", {"customers-0"}),
    ],
)
def test_every_kind_of_join_knows_the_messages_of_its_rows(
    spark: SparkSession, acker: Acker, how: str, failing: set[str]
) -> None:
    rows = {"customers": [("customers-0", 0), ("customers-1", 1)], "orders": [("orders-1", 1), ("orders-2", 2)]}
    customers, orders, _ = frames(spark, acker, {**rows, "payments": []})

    def fail(row: Row) -> Row:
        raise ValueError("all of them")

    summary = customers.join(orders, "key", how).map(fail, "key int").sink(lambda batch: None)

    assert {one.message_id for one in summary.failures} == failing


def test_a_join_with_a_plain_frame_keeps_the_messages_of_its_own_side(tracked: MakeFrame, spark: SparkSession) -> None:
    names = spark.createDataFrame([(3, "three")], "number long, name string")

    def fail(row: Row) -> Row:
        raise ValueError(row.name)

    summary = tracked(10).join(names, "number").map(fail, "name string").sink(lambda batch: None)

    assert [(one.message_id, one.error) for one in summary.failures] == [("m3", "ValueError: three")]


def test_a_frame_joined_with_itself_names_each_message_once(tracked: MakeFrame, acker: Acker) -> None:
    frame = tracked(10)
    doubled = frame.select(F.col("number").alias("other"))

    def fail(row: Row) -> Row:
        if row.number == 4:
            raise ValueError("four and five")
        return row

    joined = frame.join(doubled, F.col("other") == F.col("number") + 1)
    summary = joined.map(fail, joined.schema).sink(lambda batch: None)

    assert {one.message_id for one in summary.failures} == {"m4", "m5"}
    assert books(acker) == (10, 8, 2, 0)


def test_a_union_of_single_and_joined_rows_knows_them_all(spark: SparkSession, acker: Acker) -> None:
    rows = {"customers": [("a", 1), ("b", 2)], "orders": [("x", 1)], "payments": []}
    customers, orders, _ = frames(spark, acker, rows)
    single = customers.select("customers", F.lit("none").alias("orders"))
    union = single.union(customers.join(orders, "key").select("customers", "orders"))

    def fail(row: Row) -> Row:
        if row.orders == "x" or row.customers == "b":
            raise ValueError("bad")
        return row

    summary = union.map(fail, union.schema).sink(lambda batch: None)

    assert {one.message_id for one in summary.failures} == {"a", "b", "x"}
