"""Counts words: sentences -> split -> count. Runs in this process, or on Spark with --spark."""

import atexit
import sys
from collections.abc import Callable
from typing import Any

import redis

from redis_acker import Acker, BasicBolt, LocalRunner, OutputCollector, TaskContext, Topology, TopologyBuilder, Tuple
from redis_acker.spouts.iterable import IterableSpout

SENTENCES = ["the cow jumped over the moon", "an apple a day keeps the doctor away", "the man went to the store"]


class Split(BasicBolt):
    fields = ("word", "place")

    def process(self, tup: Tuple, emit: Callable[..., None]) -> None:
        for position, word in enumerate(tup["sentence"].split()):
            emit(word, f"{tup['number']}/{position}")


class Count(BasicBolt):
    """Counts in Redis, because the next micro-batch may run in another process.

    If a sentence fails it is replayed, and its words arrive again. So the places of a word are a set: adding a place
    twice does no harm.
    """

    def __init__(self, url: str) -> None:
        self.url = url

    def prepare(self, context: TaskContext, collector: OutputCollector) -> None:
        super().prepare(context, collector)
        self.redis = redis.Redis.from_url(self.url)

    def process(self, tup: Tuple, emit: Callable[..., None]) -> None:
        self.redis.sadd(f"places:{tup['word']}", tup["place"])

    def cleanup(self) -> None:
        self.redis.close()


def word_count(url: str) -> Topology:
    builder = TopologyBuilder("word-count")
    builder.spout("sentences", IterableSpout([*enumerate(SENTENCES * 100)], fields=("number", "sentence")))
    builder.bolt("split", Split(), parallelism=2).shuffle("sentences")
    builder.bolt("count", Count(url), parallelism=2).fields("split", "word")
    return builder.build()


def runner_of(topology: Topology, acker: Acker) -> Any:
    if "--spark" not in sys.argv:
        return LocalRunner(topology, acker)
    from pyspark.sql import SparkSession

    from spark_integration import SparkRunner

    spark = SparkSession.builder.master("local[2]").getOrCreate()
    atexit.register(spark.stop)
    return SparkRunner(topology, acker, spark)


if __name__ == "__main__":
    with Acker("embedded") as acker:
        with runner_of(word_count(acker.urls[0]), acker) as runner:
            runner.wait_until_idle()
        [books] = acker.stats().spouts
        store = redis.Redis.from_url(acker.urls[0], decode_responses=True)
        counts = {key.partition(":")[2]: store.scard(key) for key in store.scan_iter("places:*")}

    for word, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:3]:
        print(f"{word}: {count}")
    print(f"{books.initialised} sentences: {books.completed} complete, {books.failed} failed, {books.pending} pending")
