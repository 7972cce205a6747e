"""What the views of an acker must show, according to the model."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping

from redis_acker.store.ids import INDEX_BITS, MAX_BLOCK_SIZE, spout_of
from redis_acker.store.pending import PendingRoot, RootState
from redis_acker.store.stats import LATENCY_BOUNDS_MS, Latency, ShardStats, SpoutStats, Stats
from redis_acker.store.streams import Failure, FinalEvents
from tests.model.reference import Cause, FinalEvent, Model


def stats(model: Model, spouts: Mapping[int, str]) -> Stats:
    def total(event: str, spout: int) -> int:
        return sum(shard.counters[f"{event}:{spout}"] for shard in model.shards)

    events = ("initialised", "completed", "failed", "timeout", "replayed", "buried")
    by_spout = [SpoutStats(name, *(total(event, spout) for event in events)) for spout, name in sorted(spouts.items())]
    by_shard = []
    for number, shard in enumerate(model.shards):
        counted = shard.counters
        pending = sum(len(block.pending) for block in shard.blocks.values())
        by_shard.append(
            ShardStats(
                number,
                pending,
                counted["applied"],
                counted["late"],
                counted["duplicates"],
                counted["orphans"],
                shard.tick,
                counted["waits"],
                counted["late_ms"],
                early_bytes=int(any(block.size == 0 for block in shard.blocks.values())),  # of some size, or none
                early_refused=0,
                set_aside=0,
            )
        )
    components: Counter[str | None] = Counter()
    for shard in model.shards:
        components.update(shard.components)
    latencies = {
        name: latency([took for shard in model.shards for took in shard.latencies_ms[spout]])
        for spout, name in spouts.items()
    }
    return Stats(by_spout, by_shard, latencies, dict(components))


def latency(took_ms: list[int]) -> Latency:
    """A histogram of single values, bound by bound."""
    bounds = (-1, *LATENCY_BOUNDS_MS, 1 << 40)
    counts = (sum(low < one <= high for one in took_ms) for low, high in itertools.pairwise(bounds))
    return Latency(tuple(counts), sum(took_ms))


def pending(model: Model, spouts: Mapping[int, str], now_ms: int) -> Iterator[PendingRoot]:
    for shard_number, shard in enumerate(model.shards):
        for number, block in shard.blocks.items():
            for index in block.pending:
                yield PendingRoot(
                    number << INDEX_BITS | index,
                    spouts[spout_of(number << INDEX_BITS)],
                    shard_number,
                    *block.messages[index],
                    max(0, now_ms - block.birth_ms),
                    shard.tick - block.bucket,
                )


def inspect(model: Model, spouts: Mapping[int, str], now_ms: int, root: int) -> RootState:
    number, index = divmod(root, MAX_BLOCK_SIZE)
    shard = model.shard_of(number)
    base = (model.shards.index(shard), spouts.get(spout_of(root)))
    block = shard.blocks.get(number)
    if block is None:
        return RootState(root, "finished" if model.is_finished(shard, number) else "unknown", *base)
    if not block.size:
        return RootState(root, "orphan", *base, block.ack_vals.get(index, 0))
    if index not in block.pending:
        return RootState(root, "finished" if index < block.size else "unknown", *base)
    steps = model.settings.buckets - (shard.tick - block.pending[index])
    expires_ms = shard.turned_ms + steps * model.settings.tick_ms
    return RootState(
        root,
        "pending",
        *base,
        block.ack_vals[index],
        *block.messages[index],
        max(0, now_ms - block.birth_ms),
        shard.tick - block.bucket,
        max(0, expires_ms - now_ms),
    )


def events(outcome: FinalEvents) -> Iterator[FinalEvent]:
    """A stream entry, root by root."""
    cause = Cause("completed")
    if isinstance(outcome, Failure):
        cause = Cause(outcome.reason, outcome.component, outcome.error, outcome.fatal)
    columns = (outcome.roots.tolist(), outcome.message_ids, outcome.attempts, outcome.ages_ms)
    for root, message_id, attempt, age_ms in zip(*columns, strict=True):
        yield FinalEvent(root, message_id, attempt, age_ms, cause)
