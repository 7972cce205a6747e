"""The same acker in memory, in plain Python: what the store must do, small enough to be checked by eye.

It knows nothing of hashes, encodings and batches. The tests hold the store against it, step by step.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from redis_acker.store.edges import EdgeState
from redis_acker.store.ids import INDEX_BITS, MAX_BLOCK_SIZE, Token, shards_of, spout_of
from redis_acker.store.message_ids import MessageId
from redis_acker.store.namespace import StoredSettings
from redis_acker.store.stats import Acks, Fails, Inits


@dataclass(frozen=True)
class Cause:
    """Why a root came to its final event: completed, or the reason of a failure."""

    reason: str
    component: str = ""
    error: str = ""
    fatal: bool = False


@dataclass(frozen=True)
class FinalEvent:
    """The completion or failure of one root, as its spout hears of it."""

    root: int
    message_id: MessageId | None
    attempt: int
    age_ms: int
    cause: Cause


@dataclass(eq=False)
class Block:
    """All that is known of a block. Before its init (size 0) it is an orphan."""

    bucket: int
    """The tick at which its bucket was the nursery: that of its init, or of the last that came for an orphan."""
    size: int = 0
    birth_ms: int = 0
    quiet: bool = False
    echo_ids: bool = False
    messages: list[tuple[MessageId | None, int]] = field(default_factory=list)
    """Message id and attempt of each root."""
    pending: dict[int, int] = field(default_factory=dict)
    """Index of each pending root -> tick at which its clock was started, by the init or an extend."""
    ack_vals: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    fails: dict[int, Cause] = field(default_factory=dict)
    tokens: dict[bytes, int] = field(default_factory=dict)
    """Of each name the highest sequence that was applied."""
    acked_edges: set[tuple[int, int]] = field(default_factory=set)
    """Index and edge of the deliveries that were acked one by one."""


@dataclass(eq=False)
class Shard:
    """One shard: its blocks, and how far rotation is."""

    turned_ms: int
    """The time up to which the older buckets have aged."""
    newest_ms: int = 0
    """When something last came that is to live on. A step never ages it by time before that."""
    tick: int = 0
    blocks: dict[int, Block] = field(default_factory=dict)
    finished: dict[int, int] = field(default_factory=dict)
    """Block -> tick at which the last of its roots had its final event."""
    counters: Counter[str] = field(default_factory=Counter)
    latencies_ms: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Spout -> how long each of its roots took that completed."""
    components: Counter[str] = field(default_factory=Counter)
    """Roots that each component failed."""


class Model:
    """One namespace. Takes what Acker takes and answers what Acker answers."""

    def __init__(self, settings: StoredSettings, clock: Callable[[], int]) -> None:
        self.settings, self._now = settings, clock
        self.shards = [Shard(turned_ms=clock()) for _ in range(settings.shards)]
        self.events: list[FinalEvent] = []
        """Final events in the order in which they happened; quiet completions are left out."""

    def init(
        self,
        roots: Sequence[int],
        ack_vals: Sequence[int],
        *,
        message_ids: Sequence[MessageId | None] | None = None,
        attempts: int | Sequence[int] = 1,
        quiet: bool = False,
        echo_ids: bool = False,
    ) -> Inits:
        """Makes whole blocks pending; what came for them before counts now."""
        ids = message_ids or [None] * len(roots)
        tries = [attempts] * len(roots) if isinstance(attempts, int) else attempts
        edges = dict(zip(roots, ack_vals, strict=True))
        messages = dict(zip(roots, zip(ids, tries, strict=True), strict=True))
        total: Counter[str] = Counter()
        for shard, number, indexes in self._blocks(roots):
            size, block = len(indexes), shard.blocks.get(number, Block(shard.tick))
            shard.newest_ms = max(shard.newest_ms, self._now())
            if block.size or self.is_finished(shard, number):
                total += _count(shard, duplicates=size)
                continue
            shard.blocks[number] = block
            block.bucket, block.size, block.birth_ms = shard.tick, size, self._now()
            block.quiet, block.echo_ids = quiet, echo_ids
            for index in indexes:
                root = number << INDEX_BITS | index
                block.pending[index] = shard.tick
                block.messages.append(messages[root])
                block.ack_vals[index] ^= edges[root]
            strays = [index for index, ack_val in block.ack_vals.items() if index >= size and ack_val]
            strays += [index for index in block.fails if index >= size]
            shard.counters[f"initialised:{_spout(number)}"] += size
            shard.counters[f"replayed:{_spout(number)}"] += sum(attempt > 1 for _, attempt in block.messages)
            total += _count(shard, initialised=size, late=len(strays)) + self._judge(shard, number)
        return Inits(total["initialised"], total["completed"], total["failed"], total["duplicates"])

    def ack(self, roots: Sequence[int], ack_vals: Sequence[int], *, token: Token) -> Acks:
        """XORs ack vals into the roots of blocks that have not seen the token."""
        folded: dict[int, int] = defaultdict(int)
        for root, ack_val in zip(roots, ack_vals, strict=True):
            folded[root] ^= ack_val
        total: Counter[str] = Counter()
        for shard, number, indexes in self._blocks([root for root, ack_val in folded.items() if ack_val]):
            if self.is_finished(shard, number):
                total += _count(shard, late=len(indexes))
                continue
            block = shard.blocks.get(number, Block(shard.tick))
            if block.tokens.get(token.name, -1) >= token.sequence:
                total += _count(shard, duplicates=len(indexes))
                continue
            hits = [index for index in indexes if index in block.pending or self._may_come(block, index)]
            if not hits and not block.size:
                total += _count(shard, late=len(indexes))
                continue
            shard.blocks[number] = block
            block.tokens[token.name] = token.sequence
            for index in hits:
                block.ack_vals[index] ^= folded[number << INDEX_BITS | index]
            if self.settings.ack_restarts_clock:
                block.pending.update((index, shard.tick) for index in hits if block.size)
            if not block.size:
                block.bucket = shard.tick
            if hits and (self.settings.ack_restarts_clock or not block.size):
                shard.newest_ms = max(shard.newest_ms, self._now())
            total += _count(shard, applied=len(hits), late=len(indexes) - len(hits)) + self._judge(shard, number)
        return Acks(total["applied"], total["completed"], total["late"], total["duplicates"])

    def ack_edges(self, roots: Sequence[int], edges: Sequence[int], ack_vals: Sequence[int]) -> Acks:
        """XORs the ack vals of deliveries that were not acked before."""
        total: Counter[str] = Counter()
        for root, edge, ack_val in zip(roots, edges, ack_vals, strict=True):
            number, index = divmod(root, MAX_BLOCK_SIZE)
            shard = self.shard_of(number)
            block = shard.blocks.get(number, Block(shard.tick))
            if self.is_finished(shard, number) or not (index in block.pending or self._may_come(block, index)):
                total += _count(shard, late=1)
            elif (index, edge) in block.acked_edges:
                total += _count(shard, duplicates=1)
            else:
                shard.blocks[number] = block
                block.acked_edges.add((index, edge))
                block.ack_vals[index] ^= ack_val
                if block.size and self.settings.ack_restarts_clock:
                    block.pending[index] = shard.tick
                if not block.size:
                    block.bucket = shard.tick
                if self.settings.ack_restarts_clock or not block.size:
                    shard.newest_ms = max(shard.newest_ms, self._now())
                total += _count(shard, applied=1)
        for shard, number, _ in self._blocks(roots):  # only now: what is sent together counts together
            total += self._judge(shard, number) if number in shard.blocks else Counter()
        return Acks(total["applied"], total["completed"], total["late"], total["duplicates"])

    def edge_state(self, root: int, edge: int) -> EdgeState:
        number, index = divmod(root, MAX_BLOCK_SIZE)
        block = self.shard_of(number).blocks.get(number)
        if block is None or (block.size and index not in block.pending):
            return EdgeState.OVER
        return EdgeState.ACKED if (index, edge) in block.acked_edges else EdgeState.OPEN

    def fail(self, roots: Sequence[int], *, component: str = "", error: str = "", fatal: bool = False) -> Fails:
        """Fails roots at once, or when their init comes. The first fail of a root stands."""
        cause, total = Cause("failed", component, error, fatal), Counter[str]()
        for shard, number, indexes in self._blocks(roots):
            if self.is_finished(shard, number):
                total += _count(shard, late=len(indexes))
                continue
            block = shard.blocks.get(number, Block(shard.tick))
            hits = [index for index in indexes if index in block.pending or self._may_come(block, index)]
            if not hits and not block.size:
                total += _count(shard, late=len(indexes))
                continue
            shard.blocks[number] = block
            hits = [index for index in hits if index not in block.fails]
            block.fails.update((index, cause) for index in hits)
            if not block.size:
                block.bucket, shard.newest_ms = shard.tick, max(shard.newest_ms, self._now())
                total += _count(shard, kept=len(hits))
            total += _count(shard, late=len(indexes) - len(hits)) + self._judge(shard, number)
        return Fails(total["failed"], total["kept"], total["late"])

    def _may_come(self, block: Block, index: int) -> bool:
        """Whether an init may still bring the root: no block of the namespace has an index past its block size."""
        return not block.size and index < self.settings.block_size

    def extend(self, roots: Sequence[int]) -> int:
        """Restarts the clock of pending roots, and of no other."""
        extended = 0
        for shard, number, indexes in self._blocks(roots):
            block = shard.blocks.get(number, Block(shard.tick))
            hits = [index for index in indexes if index in block.pending]
            block.pending.update((index, shard.tick) for index in hits)
            shard.newest_ms = max(shard.newest_ms, self._now()) if hits else shard.newest_ms
            extended += len(hits)
        return extended

    def rotate(self, shard_number: int) -> tuple[str, int]:
        """One step, if it is due and nothing waits for a drain: 'turned', 'early' or 'waiting'; ms to the next."""
        shard, now, tick_ms = self.shards[shard_number], self._now(), self.settings.tick_ms
        shard.turned_ms = min(shard.turned_ms, now)
        if now < shard.turned_ms + tick_ms:
            return "early", shard.turned_ms + tick_ms - now
        if self.expired(shard_number):
            shard.counters["waits"] += 1
            return "waiting", 0
        shard.counters["late_ms"] += now - shard.turned_ms - tick_ms
        shard.tick += 1
        shard.turned_ms = min(now, max(shard.turned_ms + tick_ms, shard.newest_ms))
        return "turned", max(0, shard.turned_ms + tick_ms - now)

    def expired(self, shard_number: int) -> set[int]:
        """The blocks that wait for a drain."""
        shard = self.shards[shard_number]
        return {number for number, block in shard.blocks.items() if shard.tick - block.bucket >= self.settings.buckets}

    def drain(self, shard_number: int, blocks: Iterable[int]) -> tuple[int, int, int]:
        """Lets the roots of expired blocks time out, and files those whose clock was restarted again.

        Returns expired roots, orphans dropped, and roots filed again.
        """
        shard, expired, orphans, refiled = self.shards[shard_number], 0, 0, 0
        for number in self.expired(shard_number).intersection(blocks):
            block = shard.blocks[number]
            over = [index for index, tick in block.pending.items() if shard.tick - tick >= self.settings.buckets]
            block.fails.update((index, Cause("timeout")) for index in over)
            self._judge(shard, number)
            if not block.size:
                del shard.blocks[number]
                orphans += sum(_count(shard, orphans=1).values())
            block.bucket = min(block.pending.values(), default=block.bucket)
            expired, refiled = expired + len(over), refiled + len(block.pending)
        return expired, orphans, refiled

    def shard_of(self, number: int) -> Shard:
        place = shards_of(np.array([number << INDEX_BITS], dtype=np.uint64), len(self.shards))
        return self.shards[int(place[0])]

    def is_finished(self, shard: Shard, number: int) -> bool:
        """Whether a block is known to be finished: for as many ticks as there are buckets."""
        return number in shard.finished and shard.tick - shard.finished[number] < self.settings.buckets

    def _judge(self, shard: Shard, number: int) -> Counter[str]:
        """Gives pending roots that failed or are zero their final event. Fail wins over zero."""
        total, block = Counter[str](), shard.blocks[number]
        for index in list(block.pending):
            cause = block.fails.get(index) or (None if block.ack_vals[index] else Cause("completed"))
            if cause is None:
                continue
            del block.pending[index]
            total[cause.reason] += 1
            shard.counters[f"{cause.reason}:{_spout(number)}"] += 1
            completed, age_ms = cause.reason == "completed", max(0, self._now() - block.birth_ms)
            if completed:
                shard.latencies_ms[_spout(number)].append(age_ms)
            elif cause.reason == "failed":
                shard.components[cause.component] += 1
            told = (None, 1) if completed and not block.echo_ids else block.messages[index]
            if not (completed and block.quiet):
                self.events.append(FinalEvent(number << INDEX_BITS | index, *told, age_ms, cause))
        if block.size and not block.pending:
            del shard.blocks[number]
            shard.finished[number] = shard.tick
        return total

    def _blocks(self, roots: Sequence[int]) -> Iterator[tuple[Shard, int, list[int]]]:
        """Blocks, known by their roots without the low bits, and the indexes of distinct roots."""
        blocks: dict[int, set[int]] = defaultdict(set)
        for root in roots:
            number, index = divmod(root, MAX_BLOCK_SIZE)
            blocks[number].add(index)
        for number, indexes in blocks.items():
            yield self.shard_of(number), number, sorted(indexes)


def _count(shard: Shard, **amounts: int) -> Counter[str]:
    shard.counters.update(amounts)
    return Counter(amounts)


def _spout(number: int) -> int:
    return spout_of(number << INDEX_BITS)
