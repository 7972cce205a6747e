"""An acker on a store and a model of it, that are told the same and must say the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, NamedTuple

from redis_acker import Acker, Rotator, Token
from redis_acker.errors import AckerError, ServerUnavailable
from redis_acker.store.ids import INDEX_BITS
from redis_acker.store.transport import Command
from tests.backends import Backend
from tests.clock import Clock
from tests.model import expected
from tests.model.line import Line
from tests.model.reference import FinalEvent, Model

MOST_SHOWN = 2000
"""Characters of a difference: a block has hundreds of roots."""


@dataclass(frozen=True)
class Known:
    """A block as its spout knows it: its roots and the edges they were sent on."""

    number: int
    edges: tuple[int, ...]

    def root(self, index: int) -> int:
        return self.number << INDEX_BITS | index


@dataclass(frozen=True)
class Sent:
    """A batch of ack vals that was sent, and may be sent again."""

    roots: list[int]
    ack_vals: list[int]
    token: Token


class Delivery(NamedTuple):
    """What is acked by its edge, and may be again."""

    root: int
    edge: int
    ack_val: int


@dataclass
class Pair:
    """One namespace of its own, twice."""

    backend: Backend
    namespace: str
    log: list[str]
    """What was done, for a person to read."""
    clock: Clock = field(default_factory=Clock)
    known: list[Known] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    spouts: dict[int, str] = field(default_factory=dict)
    started: dict[int, tuple[int, bool]] = field(default_factory=dict)
    """Block -> size and quiet of the first init that arrived."""
    seen: Counter[FinalEvent] = field(default_factory=Counter)

    def open_with(self, **settings: Any) -> None:
        self.acker = Acker(self.backend.target, namespace=self.namespace, clock=self.clock, **settings)
        self.log.append(f"{self.acker.settings}")
        self.model = Model(self.acker.settings, self.clock)
        self.line = self.acker.shards.transport = Line(self.acker, self.follow_rotator)
        self.rotators = [Rotator(self.acker), Rotator(self.acker)]

    # -- telling both ----------------------------------------------------------------------------------------------

    def deliver(
        self, random: Random, roots: Sequence[int], on_store: Callable[[], Any], on_model: Callable[[list[int]], Any]
    ) -> None:
        """Lets the acker act, then the model, for the roots whose calls arrived: all, some, or all of them twice."""
        self.line.calm()
        manner = random.choice(("once", "once", "once", "twice", "cut"))
        if manner == "cut":
            self.line.cut_after(random.randrange(3))
        self.line.twice = manner == "twice"
        try:
            found = on_store()
        except ServerUnavailable:
            found = None
        named = {number for command in self.line.delivered for number in self.named_in(command)}
        self.line.calm()
        arrived = [i for i, root in enumerate(roots) if root >> INDEX_BITS in named]
        self.log.append(f"  {manner}: {len(arrived)} of {len(roots)} arrived, {found}")
        for _ in range(2 if manner == "twice" else 1):
            wanted = on_model(arrived)
        if found is not None:
            self.agree("reply", found, wanted)

    def deliver_acks(self, random: Random, batch: Sent, *, own: bool) -> None:
        """Without a token of ours the acker makes its own, and tells it when the line is cut."""
        tokens = [batch.token]

        def on_store() -> Any:
            try:
                return self.acker.ack(batch.roots, batch.ack_vals, token=None if own else batch.token)
            except AckerError as error:
                tokens.append(error.token or batch.token)
                raise

        def on_model(arrived: list[int]) -> Any:
            roots, ack_vals = [batch.roots[i] for i in arrived], [batch.ack_vals[i] for i in arrived]
            return self.model.ack(roots, ack_vals, token=tokens[-1])

        self.deliver(random, batch.roots, on_store, on_model)
        if not own or len(tokens) > 1:
            self.sent.append(Sent(batch.roots, batch.ack_vals, tokens[-1]))

    def deliver_edges(self, random: Random, some: Sequence[Delivery], *, leaves: bool) -> None:
        """leaves: their ack vals are their edges, and not sent."""
        roots, edges = [one.root for one in some], [one.edge for one in some]
        ack_vals = edges if leaves else [one.ack_val for one in some]

        def on_model(arrived: list[int]) -> Any:
            return self.model.ack_edges(*([column[i] for i in arrived] for column in (roots, edges, ack_vals)))

        self.deliver(random, roots, lambda: self.acker.ack_edges(roots, edges, None if leaves else ack_vals), on_model)
        self.deliveries += some

    def named_in(self, command: Command) -> set[int]:
        """The blocks a command carries, whatever its layout."""
        carried = b"".join(arg for arg in command.args if isinstance(arg, bytes))
        return {block.number for block in self.known if (block.number << INDEX_BITS).to_bytes(8, "big") in carried}

    def follow_rotator(self, command: Command, reply: Any) -> None:
        """Rotation and drain happen call by call, so the model follows call by call."""
        name = command.script.name if command.script else ""
        if name == "rotate":
            self.agree("rotate", (reply[0].decode(), reply[1]), self.model.rotate(command.shard))
        elif name == "drain":
            self.agree("drain", tuple(reply), self.model.drain(command.shard, self.named_in(command)))

    # -- comparing -------------------------------------------------------------------------------------------------

    def agree(self, what: str, store: object, model: object) -> None:
        assert store == model, f"{what}: the store says {store}, the model {model}"[:MOST_SHOWN]

    def compare_views(self) -> None:
        found = self.acker.stats()
        by_shard = [replace(one, early_bytes=min(1, one.early_bytes)) for one in found.shards]
        self.agree("stats", replace(found, shards=by_shard), expected.stats(self.model, self.spouts))
        listed = sorted(self.acker.pending(), key=lambda one: one.root)
        wanted = sorted(expected.pending(self.model, self.spouts, self.clock.now_ms), key=lambda one: one.root)
        self.agree("pending", listed, wanted)
        self.agree("pending_count", self.acker.pending_count(), len(wanted))

    def compare_root(self, root: int) -> None:
        wanted = expected.inspect(self.model, self.spouts, self.clock.now_ms, root)
        self.agree("inspect", self.acker.inspect(root), wanted)

    def compare_edges(self, some: Sequence[Delivery]) -> None:
        found = self.acker.edge_states([one.root for one in some], [one.edge for one in some]).tolist()
        self.agree("edge states", found, [self.model.edge_state(one.root, one.edge) for one in some])

    def compare_events(self) -> None:
        for spout in self.spouts.values():
            for reader in (self.acker.completions(spout), self.acker.failures(spout)):
                self.seen.update(event for outcome in reader.consume() for event in expected.events(outcome))
        told = Counter(self.model.events)
        self.agree("final events", self.seen - told, told - self.seen)

    def check_one_final_event_each(self) -> None:
        """Of what was initialised, by the streams alone: without the model's help."""
        told = Counter(event.root for event in self.seen.elements())
        quiet = {
            number << INDEX_BITS | index: quiet
            for number, (size, quiet) in self.started.items()
            for index in range(size)
        }
        assert set(told.values()) <= {1}
        assert told.keys() <= quiet.keys()
        assert {root for root in quiet if not quiet[root]} <= told.keys()
        assert self.acker.pending_count() == 0

    def check_no_key_is_left(self) -> None:
        client: Any = self.backend.client()
        for key in self.backend.keys(self.namespace):
            name = key.decode().rpartition("}:")[2]
            if name.startswith(("completions:", "failures:")):
                assert client.xlen(key) == 0, key
            else:
                assert name in ("meta", "counters", "spouts", "sequences"), key
