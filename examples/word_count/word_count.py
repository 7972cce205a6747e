"""Counts words: sentences -> split -> count."""

from collections import Counter
from collections.abc import Callable

from redis_acker import Acker, BasicBolt, LocalRunner, TopologyBuilder, Tuple
from redis_acker.sources.iterable import IterableSpout

SENTENCES = ["the cow jumped over the moon", "an apple a day keeps the doctor away", "the man went to the store"]

counts: Counter[str] = Counter()


class Split(BasicBolt):
    fields = ("word",)

    def process(self, tup: Tuple, emit: Callable[..., None]) -> None:
        for word in tup["sentence"].split():
            emit(word)


class Count(BasicBolt):
    def process(self, tup: Tuple, emit: Callable[..., None]) -> None:
        # A word is always with the same task, so no two tasks change the same count.
        counts[tup["word"]] += 1


builder = TopologyBuilder("word-count")
builder.spout("sentences", IterableSpout(SENTENCES * 100, fields=("sentence",)))
builder.bolt("split", Split(), parallelism=2).shuffle("sentences")
builder.bolt("count", Count(), parallelism=2).fields("split", "word")

with Acker("embedded") as acker:
    with LocalRunner(builder.build(), acker) as runner:
        runner.wait_until_idle()
    [books] = acker.stats().spouts

for word, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:3]:
    print(f"{word}: {count}")
print(f"{books.initialised} sentences: {books.completed} complete, {books.failed} failed, {books.pending} pending")
