"""Spark Connect: the same books, from a client that has neither plans nor broadcast variables."""

import json
import os
import subprocess
import sys
import textwrap

import pytest

from redis_acker import Acker
from redis_acker.retries.book import RetryBook
from spark_integration.runs import tracking
from tests.backends import Servers
from tests.spark.frames.books import books

JOB = """
    import json, sys
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F
    from redis_acker import Acker
    from spark_integration import BadFrame, track
    from spark_integration.runs import tracking

    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    acker = Acker(sys.argv[1], namespace=sys.argv[2])
    frame = spark.createDataFrame([(f"m{i}", i) for i in range(100)], "id string, number long")
    tracked = track(frame, acker=acker, spout="numbers", message_id="id")

    def tens(row):
        if row.number % 10 == 0:
            raise ValueError("ten")
        return row

    def five(row):
        if row.fives == 5:
            raise ValueError("five")
        return row

    checked = tracked.map(tens, "id string, number long")
    groups = checked.with_column("fives", F.floor(F.col("number") / 5)).group_by("fives").agg(F.count("*").alias("n"))
    rows, summary = groups.map(five, "fives long, n long").collect()
    tracking.MAX_INLINE = 10
    others = track(frame, acker=acker, spout="others", message_id="id")
    try:
        others.to_df()
        refused = ""
    except BadFrame as error:
        refused = str(error)
    handed_over = track(frame.limit(3), acker=acker, spout="others", message_id="id").to_df().count()
    failed = sorted(one.message_id for one in summary.failures)
    unlimited = track(frame, acker=acker, spout="unlimited", message_id="id").map(tens, "id string, number long")
    completed = [unlimited.sink(lambda batch: None).completed, unlimited.order_by("number").collect()[1].completed]
    print(json.dumps([sum(row.n for row in rows), failed, refused, handed_over, completed]))
    acker.close()
    spark.stop()
"""


@pytest.mark.full
def test_a_tracked_job_over_spark_connect(servers: Servers, namespace: str) -> None:
    url = servers.get("redis-7.0").url
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [sys.executable, "-c", textwrap.dedent(JOB), url, namespace]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]

    counted, failed, refused, handed_over, completed = json.loads(done.stdout.splitlines()[-1])
    assert failed == sorted({*(f"m{i}" for i in range(0, 100, 10)), *(f"m{i}" for i in range(25, 30))})
    assert counted == 85
    assert refused.startswith(
        "Over Spark Connect to_df(), and track(anchors=) with a shuffle, take at most 10 rows, and these are 100: split"
    )
    assert handed_over == 3
    assert completed == [90, 90]  # where rows stay in the job there is no limit, with a shuffle or without
    with Acker(url, namespace=namespace) as acker:
        assert books(acker) == (100, 85, 15, 0)
        retries = RetryBook(acker, "numbers").load()
        assert {one: retry.attempt for one, retry in retries.items()} == dict.fromkeys(failed, 1)
        assert books(acker, "others") == (3, 0, 0, 3)


def test_the_limit_is_what_the_docs_say() -> None:
    assert tracking.MAX_INLINE == 4_000_000
