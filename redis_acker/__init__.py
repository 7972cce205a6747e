"""redis-acker: knows when the whole tree of work behind a message is done."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redis_acker.acker import Acker, Acks, Fails, Inits
    from redis_acker.anchors import Anchors
    from redis_acker.bolt import BasicBolt, Bolt, FailedTuple, TaskContext
    from redis_acker.collector import OutputCollector, TupleFinished
    from redis_acker.driver import SpoutDriver
    from redis_acker.errors import AckerError
    from redis_acker.ids import new_edge, new_edges
    from redis_acker.lease import SpoutTaken
    from redis_acker.local import ComponentCounters, LocalRunner
    from redis_acker.observer import Observer
    from redis_acker.outcomes import Completion, Failure
    from redis_acker.retries import DeadLetter, DeadLetters, RetryPolicy
    from redis_acker.rotator import Rotator
    from redis_acker.spout import Message, Spout
    from redis_acker.tokens import Token
    from redis_acker.topology import BadTopology, Topology, TopologyBuilder
    from redis_acker.tuples import Tuple

__all__ = [
    "Acker",
    "AckerError",
    "Acks",
    "Anchors",
    "BadTopology",
    "BasicBolt",
    "Bolt",
    "Completion",
    "ComponentCounters",
    "DeadLetter",
    "DeadLetters",
    "FailedTuple",
    "Fails",
    "Failure",
    "Inits",
    "LocalRunner",
    "Message",
    "Observer",
    "OutputCollector",
    "RetryPolicy",
    "Rotator",
    "Spout",
    "SpoutDriver",
    "SpoutTaken",
    "TaskContext",
    "Token",
    "Topology",
    "TopologyBuilder",
    "Tuple",
    "TupleFinished",
    "new_edge",
    "new_edges",
]

# A name is imported at its first use: a probe of the command line must not wait for numpy, a bolt not for the driver.
_PLACES = {
    name: module
    for module, names in {
        "acker": ("Acker", "Acks", "Fails", "Inits"),
        "anchors": ("Anchors",),
        "bolt": ("BasicBolt", "Bolt", "FailedTuple", "TaskContext"),
        "collector": ("OutputCollector", "TupleFinished"),
        "driver": ("SpoutDriver",),
        "errors": ("AckerError",),
        "ids": ("new_edge", "new_edges"),
        "lease": ("SpoutTaken",),
        "local": ("ComponentCounters", "LocalRunner"),
        "observer": ("Observer",),
        "outcomes": ("Completion", "Failure"),
        "retries": ("DeadLetter", "DeadLetters", "RetryPolicy"),
        "rotator": ("Rotator",),
        "spout": ("Message", "Spout"),
        "tokens": ("Token",),
        "topology": ("BadTopology", "Topology", "TopologyBuilder"),
        "tuples": ("Tuple",),
    }.items()
    for name in names
}


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
