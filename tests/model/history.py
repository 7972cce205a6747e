"""Random histories: every step is taken by an acker on a store and by the model, and the two must agree.

A step is decided by a seed and by what was before it, so that steps can be left out of a history that fails.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import groupby
from random import Random
from typing import Any

from redis_acker import Token
from redis_acker.errors import ServerUnavailable
from redis_acker.store import batches, rotator
from redis_acker.store.ids import INDEX_BITS, MAX_BLOCK_SIZE
from tests.backends import Backend
from tests.model import expected, values
from tests.model.pair import Delivery, Known, Pair, Sent

SPOUTS = ("alpha", "beta")
TEXTS = ("", "split", "größer", "x" * 60)

TIMEOUT_MS = 1000

COUNTED_TOKENS = [
    *(Token(b"sender-a", sequence) for sequence in (0, 1, 2, (1 << 32) - 1)),
    # Where the first two stand side by side, the name of the third is in their bytes.
    Token(b"sender-b", int.from_bytes(b"send", "big")),
    Token(b"er-bsend", 0),
    Token(b"er-bsend", 1),
]


class History(Pair):
    """A pair, and steps to take with it."""

    def __init__(self, backend: Backend, namespace: str, seed: str, log: list[str]) -> None:
        """The seed decides on settings, and on what kinds of steps there are."""
        super().__init__(backend, namespace, log)
        self.seed = seed

    def run(self, seeds: Sequence[int]) -> None:
        bounds = batches.CALL_BUDGET_US, rotator.DRAIN_COST, rotator.PAGE_BLOCKS
        try:
            self.open(Random(self.seed))
            with self.acker:
                for seed in seeds:
                    self.step(Random(seed))
                self.end()
        finally:
            batches.CALL_BUDGET_US, rotator.DRAIN_COST, rotator.PAGE_BLOCKS = bounds
            self.backend.delete_keys(self.namespace)

    def open(self, random: Random) -> None:
        # Small calls, so that a batch or a drain is several of them and can be cut between them.
        batches.CALL_BUDGET_US = random.choice((20.0, 60.0, 500.0))
        rotator.DRAIN_COST, rotator.PAGE_BLOCKS = random.choice(((1, 2), (50, 3), (4096, 250)))
        self.open_with(
            shards=random.choice((1, 1, 1, 3)),
            buckets=random.choice((2, 3, 3, 4)),
            timeout_ms=TIMEOUT_MS,
            block_size=random.choice((1, 3, 8, 40, 40, 40, 300)),
            ack_restarts_clock=random.random() < 0.4,
        )
        self.tick_ms = self.acker.settings.tick_ms
        # Each history is fond of some steps and leaves out others: so some go deep where an even mix would not.
        steps = [step for step in STEPS if random.random() < 0.8]
        self.steps = [History.init, History.ack, History.let_time_pass, *steps]
        self.weights = [random.choice((1, 2, 4)) for _ in self.steps]
        for _ in range(random.randint(1, 2)):
            self.allocate(random)

    def step(self, random: Random) -> None:
        self.line.calm()
        random.choices(self.steps, self.weights)[0](self, random)

    def end(self) -> None:
        """Lets everything expire, then compares all there is and looks for what should not be."""
        self.compare_views()
        # What is extended just before its drain lives through all buckets again; what finishes last is remembered
        # for as many ticks after that.
        self.line.calm()
        self.clock.advance((3 * self.acker.settings.buckets + 1) * self.tick_ms)
        self.rotate()
        # After a clock that was set back, a catch-up ends at the newest time it has seen: the rest goes tick by tick.
        for _ in range(3 * self.acker.settings.buckets + 1):
            self.clock.advance(self.tick_ms)
            self.rotate()
        self.compare_views()
        self.compare_events()
        self.check_one_final_event_each()
        self.check_no_key_is_left()

    # -- steps ---------------------------------------------------------------------------------------------------

    def allocate(self, random: Random) -> None:
        sizes = (1, 2, 3, 5, 8, 9, 12, 20, 30, 40, 41, self.acker.settings.block_size)
        spout, count = random.choice(SPOUTS), random.choice(sizes)
        self.log.append(f"allocate {count} of {spout}")
        roots = self.acker.allocate(spout, count).tolist()
        self.spouts[self.acker.spout_number(spout)] = spout
        for number, size in Counter(root >> INDEX_BITS for root in roots).items():
            common, have_one = values.ack_val(random), random.random() < 0.4
            self.known.append(Known(number, tuple(common if have_one else values.ack_val(random) for _ in range(size))))

    def init(self, random: Random) -> None:
        chosen = sorted((one for one in self.pick(random) if not self.is_forgotten(one)), key=lambda one: one.number)
        whole = random.random() < 0.8
        pairs = [
            (block.root(index), block.edges[index])
            for block in chosen
            for index in range(len(block.edges) if whole else random.randint(1, len(block.edges)))
        ]
        if not pairs:
            return
        roots, edges = [root for root, _ in pairs], [edge for _, edge in pairs]
        layout, kind = random.choice(values.ID_LAYOUTS), random.choice(("first", "later", "mixed"))
        ids, tries = values.message_ids(layout, len(roots), random), values.attempts(kind, len(roots), random)
        how = {"quiet": random.random() < 0.2, "echo_ids": random.random() < 0.5}
        self.log.append(f"init {_shown(roots)} ids: {layout}, attempts: {kind}, {how}")

        def on_model(arrived: list[int]) -> Any:
            some_ids = None if ids is None else [ids[i] for i in arrived]
            some_tries = tries if isinstance(tries, int) else [tries[i] for i in arrived]
            some_roots, some_edges = [roots[i] for i in arrived], [edges[i] for i in arrived]
            for number, size in Counter(root >> INDEX_BITS for root in some_roots).items():
                self.started.setdefault(number, (size, how["quiet"]))
            return self.model.init(some_roots, some_edges, message_ids=some_ids, attempts=some_tries, **how)

        self.deliver(
            random, roots, lambda: self.acker.init(roots, edges, message_ids=ids, attempts=tries, **how), on_model
        )

    def ack(self, random: Random) -> None:
        which = random.choice(("all", "all", "one", "few", "half", "stray"))
        how = random.choice(("finish", "finish", "finish", "one bit off", "any", "alike"))
        common = values.ack_val(random)
        kind = random.choice(("own", "own", "named", "counted", "counted", "used"))
        pairs: list[tuple[int, int]] = []
        for block in self.pick(random):
            for index in self.indexes(block, which, random):
                ack_val = common if how == "alike" else self.ack_val(block, index, how, random)
                part = values.ack_val(random)
                # In two parts now and then, for the acker to fold.
                pairs += [(block.root(index), one) for one in ((part, part ^ ack_val) if part & 3 == 0 else (ack_val,))]
        if random.random() < 0.5:
            random.shuffle(pairs)
        token = self.token(kind, random)
        roots, ack_vals = [root for root, _ in pairs], [ack_val for _, ack_val in pairs]
        self.log.append(f"ack {_shown(roots)} {how}, token: {'its own' if kind == 'own' else token}")
        self.deliver_acks(random, Sent(roots, ack_vals, token), own=kind == "own")

    def send_acks_again(self, random: Random) -> None:
        if self.sent:
            batch = random.choice(self.sent[-4:])
            self.log.append(f"ack again {_shown(batch.roots)} token: {batch.token}")
            self.deliver_acks(random, batch, own=False)

    def ack_edges(self, random: Random) -> None:
        """New deliveries and some that were acked before, whose ack vals may be others now. The last of a root's new
        ones finishes it now and then."""
        which, how = random.choice(("all", "one", "few", "half", "stray")), random.choice(("finish", "any"))
        some: list[Delivery] = []
        for block in self.pick(random):
            for index in self.indexes(block, which, random):
                missing = self.ack_val(block, index, how, random)
                for _ in range(random.choice((0, 0, 1, 2))):
                    some.append(Delivery(block.root(index), values.ack_val(random), values.ack_val(random)))
                    missing ^= some[-1].ack_val
                some.append(Delivery(block.root(index), values.ack_val(random), missing))
        again = random.sample(self.deliveries[-200:], min(len(self.deliveries), random.choice((0, 1, 20, 200))))
        some += [one._replace(ack_val=values.ack_val(random)) if random.random() < 0.1 else one for one in again]
        # In one call the first of two counts, and these may come in any order.
        some = list({(one.root, one.edge): one for one in some}.values())
        self.log.append(f"ack edges {_shown([one.root for one in some])} {how}, {len(again)} again")
        self.deliver_edges(random, some, leaves=random.random() < 0.3)

    def fail(self, random: Random) -> None:
        roots = self.some_roots(random)
        component, error, fatal = random.choice(TEXTS), random.choice(TEXTS), random.random() < 0.5
        self.log.append(f"fail {_shown(roots)}")
        self.deliver(
            random,
            roots,
            lambda: self.acker.fail(roots, component=component, error=error, fatal=fatal),
            lambda some: self.model.fail([roots[i] for i in some], component=component, error=error, fatal=fatal),
        )

    def extend(self, random: Random) -> None:
        roots = self.some_roots(random)
        self.log.append(f"extend {_shown(roots)}")
        self.deliver(
            random,
            roots,
            lambda: self.acker.extend(roots),
            lambda arrived: self.model.extend([roots[i] for i in arrived]),
        )

    def let_time_pass(self, random: Random) -> None:
        ticks = random.choice((0.01, 0.5, 0.99, 1, 1, 1, 1, 1, 1.5, 2, 3, 7, -0.3, -2))
        self.log.append(f"{ticks} ticks pass")
        self.clock.advance(int(ticks * self.tick_ms))
        random.choice((self.rotate, self.rotate, self.turn_without_drain, lambda: None))()

    def rotate(self, random: Random | None = None) -> None:
        self.log.append("rotate and drain")
        before = expected.stats(self.model, self.spouts)
        found = self.rotators[0].once()
        after = expected.stats(self.model, self.spouts)
        self.agree("turned", found.turned, sum(o.tick for o in after.shards) - sum(o.tick for o in before.shards))
        expired = sum(one.timeout for one in after.spouts) - sum(one.timeout for one in before.spouts)
        self.agree("expired", found.expired, expired)
        orphans = sum(one.orphans for one in after.shards) - sum(one.orphans for one in before.shards)
        self.agree("orphans", found.orphans, orphans)

    def turn_without_drain(self, random: Random | None = None) -> None:
        self.log.append("rotate, do not drain")
        for shard in range(self.acker.settings.shards):
            self.acker.shards.rotate(shard, self.acker.settings.tick_ms)

    def drain_and_stop_half_way(self, random: Random) -> None:
        commands, shard = random.randint(1, 6), random.randrange(self.acker.settings.shards)
        self.log.append(f"drain shard {shard}, stop after {commands} commands")
        self.line.cut_after(commands)
        with suppress(ServerUnavailable):
            self.rotators[0].drain(shard)
        self.line.calm()

    def rotate_while_another_rotates(self, random: Random) -> None:
        commands = random.randint(1, 8)
        self.log.append(f"rotate, after {commands} commands another rotates")
        self.line.act_after(commands, lambda: self.rotators[1].once())
        self.rotators[0].once()
        self.line.calm()

    def look(self, random: Random) -> None:
        self.log.append("look")
        self.compare_views()
        for block in self.pick(random):
            root = block.root(random.choice((*range(len(block.edges)), random.randrange(MAX_BLOCK_SIZE))))
            self.compare_root(root)
        if self.deliveries:
            lately = self.deliveries[-300:]
            self.compare_edges([*lately, *(one._replace(edge=one.edge ^ 2 or 1) for one in lately)])

    # -- what a step is about --------------------------------------------------------------------------------------

    def pick(self, random: Random) -> list[Known]:
        """Mostly of the newest blocks, so that a lot happens to each."""
        lately = self.known[-4:] if random.random() < 0.9 else self.known
        return random.sample(lately, random.randint(1, min(3, len(lately))))

    def is_forgotten(self, block: Known) -> bool:
        """Finished so long ago that a repeated init is not recognised any more."""
        shard = self.model.shard_of(block.number)
        return block.number in shard.finished and not self.model.is_finished(shard, block.number)

    def indexes(self, block: Known, which: str, random: Random) -> list[int]:
        every, size = range(len(block.edges)), len(block.edges)
        if which == "all":
            return list(every)
        if which == "stray":
            beyond = {random.choice((size, size + 1, size + 9, MAX_BLOCK_SIZE - 1)) for _ in range(2)}
            return [*random.sample(every, random.randint(0, size)), *beyond]
        return random.sample(every, {"one": 1, "few": min(3, size), "half": -(-size // 2)}[which])

    def some_roots(self, random: Random) -> list[int]:
        which = random.choice(("all", "one", "one", "few", "half", "stray"))
        return [block.root(index) for block in self.pick(random) for index in self.indexes(block, which, random)]

    def ack_val(self, block: Known, index: int, how: str, random: Random) -> int:
        """finish: what makes the root zero now, or when its init comes."""
        record = self.model.shard_of(block.number).blocks.get(block.number)
        missing = record.ack_vals.get(index, 0) if record else 0
        if (record is None or not record.size) and index < len(block.edges):
            missing ^= block.edges[index]
        if how == "finish":
            return missing or values.ack_val(random)
        return values.one_bit_off(missing, random) if how == "one bit off" else values.ack_val(random)

    def token(self, kind: str, random: Random) -> Token:
        if kind == "used" and self.sent:
            return random.choice(self.sent[-4:]).token
        return random.choice(COUNTED_TOKENS) if kind == "counted" else Token.of(random.randbytes(8))


STEPS: list[Callable[[History, Random], None]] = [
    History.allocate,
    History.init,
    History.ack,
    History.ack,
    History.send_acks_again,
    History.ack_edges,
    History.ack_edges,
    History.fail,
    History.extend,
    History.extend,
    History.let_time_pass,
    History.rotate,
    History.turn_without_drain,
    History.drain_and_stop_half_way,
    History.rotate_while_another_rotates,
    History.look,
]


def _shown(roots: Sequence[int]) -> str:
    by_block: dict[int, list[int]] = {}
    for root in roots:
        by_block.setdefault(root >> INDEX_BITS, []).append(root % MAX_BLOCK_SIZE)
    return ", ".join(f"block {number:x}: {_ranges(indexes)}" for number, indexes in by_block.items())


def _ranges(indexes: Sequence[int]) -> str:
    distinct, parts = sorted(set(indexes)), []
    for _, run in groupby(enumerate(distinct), key=lambda pair: pair[1] - pair[0]):
        first, *rest = [index for _, index in run]
        parts.append(f"{first}-{rest[-1]}" if rest else f"{first}")
    return " ".join(parts)
