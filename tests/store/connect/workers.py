"""What other processes do in these tests. Functions of a module, because a new process imports them by name."""

from __future__ import annotations

import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from redis_acker import Acks
from redis_acker.store.ids import U64Array


def new_process() -> ProcessPoolExecutor:
    """A process that shares nothing with this one."""
    return ProcessPoolExecutor(1, mp_context=get_context("spawn"))


def ack_with_pickled(pickled: bytes, roots: U64Array, ack_vals: U64Array) -> tuple[Acks, str]:
    """Acks through an Acker that arrives pickled; returns what that did, and the Acker as text."""
    with pickle.loads(pickled) as acker:
        return acker.ack(roots, ack_vals), repr(acker)
