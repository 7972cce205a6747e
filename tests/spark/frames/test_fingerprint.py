"""Whatever would change a message changes the fingerprint of the input, so that it is not taken for done. That of the
steps is the same in every process."""

from collections.abc import Callable, Iterable
from pathlib import Path
from types import FunctionType

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_integration.frames import fused
from spark_integration.frames.fingerprint import input_fingerprint
from spark_integration.frames.repeatable import stored
from spark_integration.runs.messages import MessageFrame

COLUMNS = 30
"""More than Spark names when it writes a plan."""

NAMES = [f"c{i}" for i in range(COLUMNS)]

Make = Callable[[DataFrame], DataFrame]

CHANGES: dict[str, tuple[Make, Make]] = {
    "the last of many columns": (
        lambda frame: frame.withColumn(NAMES[-1], F.col(NAMES[-1]) * 2),
        lambda frame: frame.withColumn(NAMES[-1], F.col(NAMES[-1]) * 3),
    ),
    "the last argument of many": (
        lambda frame: frame.where(F.coalesce(*NAMES, F.lit(1)) > 0),
        lambda frame: frame.where(F.coalesce(*NAMES, F.lit(2)) > 0),
    ),
    "names that changed places": (
        lambda frame: frame.select("id", F.col("c1").alias("x"), F.col("c2").alias("y")),
        lambda frame: frame.select("id", F.col("c1").alias("y"), F.col("c2").alias("x")),
    ),
    "a type": (
        lambda frame: frame.select("id", F.lit(1).alias("x")),
        lambda frame: frame.select("id", F.lit("1").alias("x")),
    ),
}


@pytest.fixture
def files(spark: SparkSession, tmp_path: Path) -> str:
    path = str(tmp_path / "files")
    spark.range(3).select("id", *(F.lit(i).alias(name) for i, name in enumerate(NAMES))).write.csv(path, header=True)
    return path


def differ(one: DataFrame, other: DataFrame) -> bool:
    first, second = input_fingerprint(one), input_fingerprint(other)
    assert first.text
    assert second.text
    assert (first.text == second.text) == (first.content == second.content)
    return first.text != second.text


@pytest.mark.parametrize("what", CHANGES)
def test_other_steps_before_it_is_tracked(spark: SparkSession, files: str, what: str) -> None:
    before, after = CHANGES[what]
    frame = spark.read.csv(files, header=True)

    assert differ(before(frame), after(frame))
    assert not differ(before(frame), before(spark.read.csv(files, header=True)))


def test_files_that_are_read_in_another_way(spark: SparkSession, files: str) -> None:
    schema = "id long, c0 int, c1 int"
    frame = spark.read.csv(files, schema=schema, header=True)

    assert not differ(frame, spark.read.csv(files, schema=schema, header=True))
    assert differ(frame, spark.read.csv(files, schema=schema, header=True, nullValue="1"))
    assert differ(frame, spark.read.csv(files, schema="id long, c1 int, c0 int", header=True))
    assert differ(frame, spark.read.csv(files, schema="id long, c0 int, c1 string", header=True))

    def as_texts(kind: str) -> DataFrame:
        return spark.read.csv(files, schema=f"id long, c0 {kind}", header=True).select("id", F.col("c0").cast("string"))

    assert differ(as_texts("int"), as_texts("double"))


def test_the_same_files_by_another_spelling_of_their_path_are_the_same(spark: SparkSession, files: str) -> None:
    assert not differ(spark.read.csv(files), spark.read.csv([f"file://{files}"]))


def test_files_that_a_subquery_reads(spark: SparkSession, files: str, tmp_path: Path) -> None:
    rates = str(tmp_path / "rates")

    def read(rate: int) -> str:
        spark.range(rate, rate + 1).write.mode("overwrite").parquet(rates)
        spark.read.csv(files, header=True).createOrReplaceTempView("messages")
        price = f"c1 * (SELECT max(id) FROM parquet.`{rates}`) AS price"
        return input_fingerprint(spark.sql(f"SELECT id, {price} FROM messages")).text

    assert read(1) != read(2)


def test_an_input_that_is_not_files(spark: SparkSession, files: str) -> None:
    """Whatever the user knows of it."""
    spark.range(3).createOrReplaceTempView("numbers")
    table = {"url": "jdbc:derby:memory:fingerprint;create=true", "dbtable": "numbers"}
    spark.table("numbers").write.format("jdbc").options(**table).mode("overwrite").save()
    database = spark.read.format("jdbc").options(**table).load()
    spark.read.csv(files, header=True).createOrReplaceTempView("messages")
    in_memory = stored(spark.range(3))
    in_memory.createOrReplaceTempView("in_memory")
    in_subquery = spark.sql("SELECT * FROM messages WHERE id IN (SELECT id FROM in_memory)")

    for frame in (database, in_memory, in_subquery):
        found = input_fingerprint(frame)
        assert (found.text, found.content) == ("", "")
        assert found.why_not == "its input is not files, so there is no way to know whether it is the same"


def test_a_step_that_looks_into_a_set() -> None:
    """The order of a set depends on the process; here, on the order in which it was filled."""

    def code(items: Iterable[int]) -> str:
        looks: FunctionType = lambda row: row in {1, 2}  # type: ignore[assignment]  # noqa: E731
        return fused._code(looks.__code__.replace(co_consts=(frozenset(items),)))

    assert repr(frozenset([0, 8])) != repr(frozenset([8, 0]))
    assert code([0, 8]) == code([8, 0])
    assert code([0, 8]) != code([0, 9])


def test_rows_with_the_same_key_have_an_order(spark: SparkSession) -> None:
    """Or another attempt at a task could take one of them for another, which is done."""
    rows = [("a", i, {"x": i}, [i]) for i in range(5)] + [("b", 1, {}, [])]

    def order(given: list[tuple[str, int, dict[str, int], list[int]]]) -> list[int]:
        frame = spark.createDataFrame(given, "id string, number long, tags map<string,int>, list array<int>")
        messages = MessageFrame(frame.repartition(1), "numbers", "id")
        return [row.number for row in fused.in_order(messages.with_books(has_id_column=True)).collect()]

    assert order(rows) == order(rows[::-1])
