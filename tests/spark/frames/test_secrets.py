"""Passwords stay out of everything that Spark shows or keeps."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from redis_acker import Acker
from spark_integration.workers import StoreAddress
from tests.servers import start_server

PASSWORD = "correct-horse-battery"

JOB = """
    import sys
    from pyspark.sql import SparkSession
    from redis_acker import Acker
    from spark_integration import track

    url, events = sys.argv[1:]
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    for name, value in {"enabled": "true", "compress": "false", "dir": events}.items():
        builder = builder.config(f"spark.eventLog.{name}", value)
    spark = builder.getOrCreate()

    def explain_and_write(writer):
        writer._df.explain("extended")
        writer.format("noop").mode("overwrite").save()

    def strict(row):
        assert row.id != 3
        return row

    with Acker(url) as acker:
        frame = track(spark.range(10), acker=acker, spout="numbers", message_id="id").map(strict, "id long")
        print(frame.write(explain_and_write))
"""


@pytest.mark.full
def test_neither_plans_nor_the_event_log_hold_the_password(tmp_path: Path) -> None:
    server = start_server("redis-7.0")
    try:
        server.client().config_set("requirepass", PASSWORD)
        url = server.url.replace("redis://", f"redis://:{PASSWORD}@")
        with Acker(url) as acker:
            assert PASSWORD not in repr(StoreAddress.of(acker))
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        command = [sys.executable, "-c", textwrap.dedent(JOB), url, str(tmp_path)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    finally:
        server.stop()
    events = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())

    assert "9 completed, 1 failed" in done.stdout
    assert "MapInArrow" in done.stdout
    assert b"MapInArrow" in events
    assert PASSWORD not in done.stdout + done.stderr
    assert PASSWORD.encode() not in events
