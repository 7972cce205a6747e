"""redis-acker: knows when the whole tree of work behind a message is done."""

from redis_acker.acker import Acker, Acks, Fails, Inits
from redis_acker.errors import AckerError
from redis_acker.ids import new_edge, new_edges
from redis_acker.outcomes import Completion, Failure
from redis_acker.rotator import Rotator
from redis_acker.tokens import Token

__all__ = [
    "Acker",
    "AckerError",
    "Acks",
    "Completion",
    "Fails",
    "Failure",
    "Inits",
    "Rotator",
    "Token",
    "new_edge",
    "new_edges",
]
