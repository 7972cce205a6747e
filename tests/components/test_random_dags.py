"""Whatever the graph of tuples, and in whatever order its acks arrive, a root completes with its last tuple."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from redis_acker import Tuple, new_edges
from tests.components.desk import Desk, tuple_of
from tests.components.store import Store

COMPONENTS = 3


@dataclass(frozen=True)
class Emit:
    """One emit of a plan: its parents by number (one may be named twice; none: unanchored), and its consumers."""

    parents: list[int]
    consumers: int


@dataclass(frozen=True)
class Plan:
    """A graph of tuples. The first ones come from the spouts, the others from the emits, in their order."""

    spout_sends: list[int]
    """Of each root, the number of consumers of its message."""
    emits: list[Emit]

    @property
    def size(self) -> int:
        return sum(self.spout_sends) + sum(emit.consumers for emit in self.emits)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    spout_sends = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    known, emits = sum(spout_sends), []
    for _ in range(draw(st.integers(0, 7))):
        parents = draw(st.lists(st.integers(0, known - 1), max_size=3))
        emits.append(Emit(parents, draw(st.integers(0, 2))))
        known += emits[-1].consumers
    return Plan(spout_sends, emits)


@dataclass
class Run:
    """A plan at work: which tuples exist, and which acks have reached the store."""

    plan: Plan
    store: Store
    desks: list[Desk] = field(init=False)
    roots: list[int] = field(default_factory=list)
    tuples: list[Tuple] = field(default_factory=list)
    trees: list[set[int]] = field(default_factory=list)
    """Of each tuple, the roots it hangs on by way of its parents."""
    emitted: int = 0
    acked: set[int] = field(default_factory=set)
    arrived: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.desks = [Desk(self.store.acker, f"bolt{number}") for number in range(COMPONENTS)]

    def send_roots(self) -> None:
        self.roots = self.store.acker.allocate("orders", len(self.plan.spout_sends)).tolist()
        edges = [new_edges(count).tolist() for count in self.plan.spout_sends]
        self.store.acker.init(self.roots, [xor_of(some) for some in edges])
        for root, some in zip(self.roots, edges, strict=True):
            self.tuples += [tuple_of((root, edge)) for edge in some]
            self.trees += [{root} for _ in some]

    def actions(self, left_out: int | None) -> list[tuple[str, int]]:
        """What can happen next: the next emit, the ack of a tuple that gets no more children, a flush."""
        found = [("flush", desk) for desk, one in enumerate(self.desks) if len(one.buffer)]
        waiting = self.plan.emits[self.emitted :]
        if waiting:
            found.append(("emit", self.emitted))
        busy = {parent for emit in waiting for parent in emit.parents} | self.acked
        found += [("ack", i) for i in range(len(self.tuples)) if i not in busy and i != left_out]
        return found

    def act(self, name: str, number: int) -> None:
        desk = self.desks[number % COMPONENTS]
        if name == "emit":
            emit = self.plan.emits[number]
            desk.wire.consumers = emit.consumers
            self.tuples += desk.emit(*(self.tuples[parent] for parent in emit.parents))
            tree = set[int]().union(*(self.trees[parent] for parent in emit.parents))
            self.trees += [tree for _ in range(emit.consumers)]
            self.emitted += 1
        elif name == "ack":
            desk.collector.ack(self.tuples[number])
            self.acked.add(number)
        else:
            desk.buffer.flush()
            self.arrived |= {i for i in self.acked if i % COMPONENTS == number}

    def check(self) -> None:
        """A root is pending as long as some ack is missing, and no longer."""
        all_sent = self.emitted == len(self.plan.emits)
        for root in self.roots:
            mine = {i for i, tree in enumerate(self.trees) if root in tree}
            assert self.store.is_pending(root) == (not mine <= self.arrived)
            if all_sent and self.store.is_pending(root):
                missing = [self.tuples[i] for i in mine - self.arrived]
                assert self.store.ack_val(root) == xor_of([_missing_ack_val(tup, root) for tup in missing])


def xor_of(words: list[int]) -> int:
    total = 0
    for word in words:
        total ^= word
    return total


def _missing_ack_val(tup: Tuple, root: int) -> int:
    return tup.anchors[root] ^ tup.child_edges


def work_off(run: Run, data: st.DataObject, left_out: int | None = None) -> None:
    run.store.completed()  # of an example that failed
    run.send_roots()
    run.check()
    while actions := run.actions(left_out):
        name, number = data.draw(st.sampled_from(actions))
        run.act(name, number)
        if name == "flush":
            run.check()


#: The store is shared by all examples of a test: each has roots of its own.
relaxed = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@relaxed
@given(plan=plans(), data=st.data())
def test_a_root_completes_with_its_last_tuple_and_never_before(store: Store, plan: Plan, data: st.DataObject) -> None:
    run = Run(plan, store)
    work_off(run, data)
    assert len(run.acked) == plan.size
    assert store.completed() == sorted(run.roots)


@relaxed
@given(plan=plans(), data=st.data())
def test_a_root_never_completes_if_one_tuple_is_left_out(store: Store, plan: Plan, data: st.DataObject) -> None:
    left_out = data.draw(st.integers(0, plan.size - 1), label="left out")
    run = Run(plan, store)
    work_off(run, data, left_out)
    unfinished = run.trees[left_out]
    assert store.completed() == sorted(set(run.roots) - unfinished)
    assert {root for root in run.roots if store.is_pending(root)} == unfinished
