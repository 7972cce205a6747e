"""Options are checked, each with one sentence; passwords are shown nowhere."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from redis_acker.errors import BadInput
from spark_integration import RedisStreamSource, register
from spark_integration.sources.address import ServerAddress
from spark_integration.sources.options import SinkOptions, SourceOptions
from tests.servers import start_server

PASSWORD = "correct-horse-battery"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "The option 'stream' is missing: format\\(\"redis_acker\"\\) needs it for a stream that is read."),
        ({"shards": "0"}, "The option 'shards' is a whole number from 1 to 1000, not '0'."),
        ({"shards": "many"}, "The option 'shards' is a whole number from 1 to 1000, not 'many'."),
        ({"max_per_trigger": "-1"}, "The option 'max_per_trigger' is a whole number from 1 to \\d+, not '-1'."),
        ({"start": "yesterday"}, "The option 'start' is one of oldest, newest, not 'yesterday'."),
        ({"missing": "ignore"}, "The option 'missing' is one of fail, skip, not 'ignore'."),
        ({"release": "now"}, "The option 'release' is one of never, committed, finished, not 'now'."),
        ({"max_pending": "10"}, "max_pending counts entries that are not finished, so it needs release=finished"),
        ({"release": "committed", "start": "newest"}, "release=committed deletes all entries up to those"),
        (
            {"release": "finished", "start": "newest", "max_pending": "10"},
            "max_pending counts all entries up to those",
        ),
        ({"maxpending": "10"}, "There is no option 'maxpending' for a stream that is read: there are max_pending, "),
    ],
)
def test_an_option_that_makes_no_sense_is_refused(options: dict[str, str], sentence: str) -> None:
    named = {"stream": "orders", **options} if options else {}
    with pytest.raises(BadInput, match=sentence):
        SourceOptions.read(named)


def test_options_of_a_sink_are_checked_too_and_those_of_spark_are_left_alone() -> None:
    found = SinkOptions.read({"Stream": "orders", "shards": "2", "checkpointLocation": "x", "key": "customer"})
    assert (found.names, found.key) == (["orders:0", "orders:1"], "customer")
    with pytest.raises(BadInput, match="There is no option 'start' for a stream that is written"):
        SinkOptions.read({"stream": "orders", "start": "oldest"})


def test_a_source_checks_what_it_is_given(url: str) -> None:
    wrong: dict[str, Any] = {"shards": 0}
    with pytest.raises(BadInput, match="The option 'shards' is a whole number from 1 to 1000, not '0'"):
        RedisStreamSource(url, "orders", **wrong)
    with pytest.raises(BadInput, match="cannot share an embedded server"):
        RedisStreamSource("embedded", "orders")


def test_an_older_pyspark_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.__version__", "4.1.2")
    session: Any = None
    with pytest.raises(BadInput, match=r"needs PySpark 4.2 or newer, .* this is 4.1.2"):
        register(session)


def test_columns_of_a_stream_are_text_or_bytes(spark: SparkSession, url: str, stream: str, tmp_path: Path) -> None:
    register(spark, url=url)
    frame = spark.readStream.format("redis_acker").schema("number long").option("stream", stream).load()
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path))

    with pytest.raises(Exception, match="The column 'number' of a stream is string or binary, not bigint: cast it"):
        writer.start().awaitTermination()


def test_an_option_cannot_hold_a_password(spark: SparkSession, url: str) -> None:
    register(spark, url=url)
    secret = url.replace("redis://", f"redis://:{PASSWORD}@")
    with pytest.raises(Exception, match="The option 'url' holds a password, and Spark shows options") as refused:
        spark.readStream.format("redis_acker").option("url", secret).load()
    assert PASSWORD not in str(refused.value)
    assert PASSWORD not in repr(ServerAddress.of(secret))


JOB = """
    import sys
    from pyspark.sql import SparkSession
    from spark_integration import RedisStreamSource, register

    url, events, state = sys.argv[1:]
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    for name, value in {"enabled": "true", "compress": "false", "dir": events}.items():
        builder = builder.config(f"spark.eventLog.{name}", value)
    spark = builder.getOrCreate()
    register(spark, url=url)
    source = RedisStreamSource(url, "orders")
    frame = source.frame(spark)
    frame.explain("extended")
    print(source, vars(source))
    writer = frame.writeStream.format("redis_acker").option("stream", "copies").trigger(availableNow=True)
    query = writer.option("checkpointLocation", state).start()
    query.awaitTermination()
    query.explain(True)
    print(query.recentProgress, source.status())
    bad = spark.read.format("redis_acker").option("view", "pending").option("namespace", "none").load()
    try:
        bad.collect()
    except Exception as error:
        print(error)
"""


@pytest.mark.slow
def test_neither_plans_nor_errors_nor_the_event_log_hold_the_password(tmp_path: Path) -> None:
    server = start_server("redis-7.0")
    try:
        client = server.client()
        client.xadd("orders", {"number": 1})
        client.config_set("requirepass", PASSWORD)
        url = server.url.replace("redis://", f"redis://:{PASSWORD}@")
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        (tmp_path / "events").mkdir()
        command = [sys.executable, "-c", textwrap.dedent(JOB), url, str(tmp_path / "events"), str(tmp_path / "state")]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        copied = client.xlen("copies")
    finally:
        server.stop()
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())

    assert copied == 1
    assert "redis_acker" in done.stdout
    assert b"redis_acker" in kept
    assert PASSWORD not in done.stdout + done.stderr
    assert PASSWORD.encode() not in kept
