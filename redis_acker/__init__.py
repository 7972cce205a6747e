"""redis-acker: knows when the whole tree of work behind a message is done."""

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
