"""Routing: which task of a bolt gets which tuple, in a local runner and in executors alike."""

from __future__ import annotations

import copy
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from decimal import Decimal
from itertools import count
from numbers import Number
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from redis_acker.components.component import TaskContext, TaskId
from redis_acker.components.tuples import Anchors, Tuple
from redis_acker.errors import BadInput, BadTopology, FailedTuple, text_of

if TYPE_CHECKING:
    from redis_acker.topology.topology import Topology

Kind = Literal["shuffle", "fields", "all", "global", "direct", "custom"]


class CustomGrouping:
    """Deals out the tuples of a stream as you say. Each task that emits has a copy of its own."""

    def prepare(self, fields: Sequence[str], tasks: int) -> None:
        """Called once, before the first tuple: the fields of the stream, and how many tasks the bolt has."""

    def choose_tasks(self, values: Sequence[Any]) -> Iterable[int]:
        """Which tasks get these values, by their numbers from 0; none if nobody is to get them. On Spark it must choose
        the same for the same values, or for the same values in the same order: a task may run more than once."""
        raise NotImplementedError


@dataclass(frozen=True)
class Grouping:
    """How the tuples of one stream of a component are dealt out to the tasks of a bolt that listens."""

    component: str
    """The component that emits them."""
    stream: str
    kind: Kind
    names: tuple[str, ...] = ()
    """The fields of a fields grouping."""
    custom: CustomGrouping | None = None

    def dealer(
        self, fields: Sequence[str], parallelism: int, *, first: int = 0
    ) -> Callable[[Sequence[Any]], Iterable[int]]:
        """A function that says which tasks get these values. A shuffle starts with task first."""
        if self.custom:
            return _custom_dealer(self.custom, fields, parallelism)
        if self.kind == "direct":
            return self._refuse
        if self.kind == "all":
            return lambda values: range(parallelism)
        if self.kind == "global" or (self.kind == "shuffle" and parallelism == 1):
            return lambda values: _FIRST
        if self.kind == "shuffle":
            turns = count(first)
            return lambda values: _only(next(turns) % parallelism)
        positions = [fields.index(name) for name in self.names]
        return lambda values: _only(task_of_key([values[position] for position in positions], parallelism))

    def _refuse(self, values: Sequence[Any]) -> Iterable[int]:
        raise BadInput(f"The listeners of stream {self.stream!r} of {self.component!r} are direct: use emit_direct().")


class TupleQueue(Protocol):
    """Where the tuples for one task go."""

    def put(self, tup: Tuple) -> None: ...


class TaskRouter:
    """Delivers what one task emits to the queues of the tasks that listen."""

    def __init__(self, topology: Topology, emitter: TaskContext, queues: Mapping[str, Sequence[TupleQueue]]) -> None:
        """queues: those of all bolts, one for each task."""
        self.delivered = 0
        self._component = emitter.component
        emitting = topology.components[emitter.component]
        component = emitting.component
        self._fields = {stream: tuple(fields) for stream, fields in component.all_streams().items()}
        self._queues = queues
        self._listeners: dict[str, list[tuple[list[TaskId], Callable[[Sequence[Any]], Iterable[int]]]]] = {}
        self._direct: dict[str, list[TaskId]] = {}
        for stream, fields in self._fields.items():
            self._listeners[stream], self._direct[stream] = [], []
            for spec, grouping in topology.listeners(emitter.component, stream):
                tasks = [TaskId(spec.name, task) for task in range(spec.parallelism)]
                dealer = grouping.dealer(fields, spec.parallelism, first=emitter.task)
                if emitting.is_spout and grouping.kind in ("fields", "custom"):
                    dealer = _failing_one_message(dealer, f"The {grouping.kind} grouping of {spec.name!r}")
                self._listeners[stream].append((tasks, dealer))
                self._direct[stream] += tasks if grouping.kind == "direct" else []

    def direct_tasks(self, stream: str) -> list[TaskId]:
        return list(self._direct.get(stream, ()))

    def targets(self, stream: str, values: Sequence[Any], to: TaskId | None = None) -> list[TaskId]:
        fields = self._fields.get(stream)
        if fields is None:
            raise BadInput(
                f"{self._component!r} emits to stream {stream!r}, which it does not declare: it has "
                f"{list(self._fields)}."
            )
        if type(values) not in _LISTS and not _is_list(values):
            raise BadInput(f"{self._component!r} emits {values!r}, which is not a list of values: put it into one.")
        if fields and len(fields) != len(values):
            raise BadInput(
                f"{self._component!r} emits {len(values)} values to stream {stream!r}, which has fields {list(fields)}."
            )
        if to is None:
            return [tasks[task] for tasks, deal in self._listeners[stream] for task in deal(values)]
        if to not in self._direct[stream]:
            raise BadInput(
                f"{self._component!r} emits directly to {tuple(to)}, which does not listen to stream {stream!r} with a "
                f"direct grouping: direct_tasks() has {[tuple(one) for one in self._direct[stream]]}."
            )
        return [next(one for one in self._direct[stream] if one == to)]

    def deliver(self, target: TaskId, values: Sequence[Any], stream: str, anchors: Anchors) -> None:
        self.delivered += 1
        fields, queue = self._fields[stream], self._queues[target.component][target.task]
        queue.put(Tuple(values, fields=fields, anchors=anchors, component=self._component, stream=stream))


def task_of_key(key: Sequence[Any], parallelism: int) -> int:
    """The task for a key of a fields grouping: the same for equal keys, in every process."""
    return zlib.crc32(_stable(key).encode(errors="surrogatepass")) % parallelism


_FIRST = range(1)
_LISTS = frozenset({tuple, list})


def _is_list(values: Any) -> bool:
    return hasattr(values, "__len__") and not isinstance(values, (str, bytes, Mapping, Set))


def _custom_dealer(
    grouping: CustomGrouping, fields: Sequence[str], parallelism: int
) -> Callable[[Sequence[Any]], list[int]]:
    try:
        own = copy.deepcopy(grouping)
    except Exception as error:
        raise BadTopology(
            f"{type(grouping).__name__} cannot be copied for the tasks that emit ({error}): open what it needs in "
            "prepare(), not before."
        ) from error
    try:
        own.prepare(fields, parallelism)
    except Exception as error:
        raise BadTopology(f"prepare() of {type(grouping).__name__} raised {text_of(error)}") from error

    def deal(values: Sequence[Any]) -> list[int]:
        chosen: Any = own.choose_tasks(values)
        if not isinstance(chosen, Iterable):
            raise BadInput(
                f"{type(own).__name__}.choose_tasks() returned {chosen!r:.200}: return a list of the numbers of tasks, "
                "an empty one if nobody is to get the values."
            )
        tasks = list(chosen)
        for task in tasks:
            is_whole = isinstance(task, (int, np.integer)) and not isinstance(task, bool)
            if not (is_whole and 0 <= task < parallelism):
                raise BadInput(
                    f"{type(own).__name__}.choose_tasks() chose task {task!r} for {values!r:.200}, but the bolt has "
                    f"tasks 0 to {parallelism - 1}."
                )
        return [int(task) for task in tasks]

    return deal


def _failing_one_message(
    deal: Callable[[Sequence[Any]], Iterable[int]], name: str
) -> Callable[[Sequence[Any]], Iterable[int]]:
    """What a grouping cannot deal out fails, and does not end the run: whatever a bolt emits so fails its tuple too."""

    def deal_or_fail(values: Sequence[Any]) -> Iterable[int]:
        try:
            return deal(values)
        except Exception as error:  # choose_tasks() is the user's
            raise FailedTuple(f"{name} raised {text_of(error)}", fatal=True) from error

    return deal_or_fail


def _only(task: int) -> range:
    return range(task, task + 1)


def _stable(value: Any) -> str:
    """A text that is the same for equal values, in every process; hash() of a str is not."""
    if isinstance(value, str):
        return f"{len(value)}:{str.__str__(value)}"
    if isinstance(value, (Number, np.bool_)):
        if _is_nan(value):
            return "nan"  # not equal even to itself, and its hash() is that of the object
        return str(hash(value))  # 1, 1.0, True and numpy's 1 are equal, and hash() of a number is not salted
    if isinstance(value, (tuple, list)):
        return f"({','.join(map(_stable, value))})"
    if isinstance(value, (set, frozenset, dict)):
        members = value.items() if isinstance(value, dict) else value
        return f"{{{','.join(sorted(map(_stable, members)))}}}"
    if getattr(type(value), "__repr__", None) is object.__repr__:
        raise BadInput(
            f"Tuples cannot be grouped by {value!r}: use strings, numbers, or objects with a repr of their own."
        )
    return repr(value)


def _is_nan(value: Any) -> bool:
    return value.is_nan() if isinstance(value, Decimal) else bool(value != value)
