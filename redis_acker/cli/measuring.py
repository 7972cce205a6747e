"""Measures the store against plain HSETs: what `redis-acker bench` and `python -m benchmarks store` share."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from statistics import median

import numpy as np

from redis_acker.errors import AckerError
from redis_acker.store.acker import Acker
from redis_acker.store.ids import new_edges

SPOUT = "bench"


class Rounds:
    """Operations per second, by name, in rounds that measure HSETs too: a busy machine slows both down."""

    def __init__(self) -> None:
        self._hsets: list[float] = []
        self._rates: dict[str, list[float]] = {}

    def __len__(self) -> int:
        return len(self._hsets)

    def add(self, hset_per_s: float, rates: Mapping[str, float]) -> None:
        self._hsets.append(hset_per_s)
        for name, rate in rates.items():
            self._rates.setdefault(name, []).append(rate)

    @property
    def hset_per_s(self) -> float:
        return median(self._hsets)

    def per_s(self, name: str) -> float:
        return median(self._rates[name])

    def vs_hset(self, name: str) -> float:
        """The median of the ratios to the HSETs of the same round."""
        return median(rate / hset for rate, hset in zip(self._rates[name], self._hsets, strict=True))


def measure_rounds(
    count: int,
    hset_per_s: Callable[[], float],
    rates: Callable[[], Mapping[str, float]],
    *,
    longest_s: float = float("inf"),
    done: Callable[[], None] = lambda: None,
) -> Rounds:
    """Measures rounds after one that warms up. Starts none after longest_s, and calls done after each."""
    rounds, deadline = Rounds(), time.monotonic() + longest_s
    for number in range(count + 1):
        hset, found = hset_per_s(), rates()
        done()
        if number > 0:
            rounds.add(hset, found)
            if time.monotonic() > deadline:
                break
    return rounds


def rates_of_a_round(acker: Acker, count: int, *, is_full: bool = False) -> dict[str, float]:
    """Inits, acks and completing acks per second, of roots in whole blocks.

    is_full: also acks in random order, and roots from their init until their completion is read.
    """
    roots = acker.allocate(SPOUT, count)
    first, second, third = new_edges(count), new_edges(count), new_edges(count)
    took_s = {
        "init": seconds(lambda: acker.init(roots, first, quiet=not is_full)),
        "ack": seconds(lambda: acker.ack(roots, first ^ second)),
    }
    last = second
    if is_full:
        order = np.random.default_rng(count).permutation(count)
        shuffled_roots, shuffled_vals, last = roots[order], (second ^ third)[order], third
        took_s["shuffled"] = seconds(lambda: acker.ack(shuffled_roots, shuffled_vals))
    took_s["complete"] = seconds(lambda: acker.ack(roots, last))
    if is_full:
        read_s = seconds(lambda: _read_completions(acker, count))
        took_s["roots"] = took_s["init"] + took_s["ack"] + took_s["complete"] + read_s
    return {name: count / one_s for name, one_s in took_s.items()}


def _read_completions(acker: Acker, expected: int) -> None:
    with acker.completions(SPOUT) as completions:
        found = sum(len(completion) for completion in completions.consume())
    if found != expected:
        raise AckerError(f"Only {found:,} of {expected:,} completions came: the measurement is worthless.")


def bytes_per_root(acker: Acker, count: int, used_memory: Callable[[], int]) -> tuple[float, float]:
    """How much the server's memory grows per pending root: after the init, and after an ack, which leaves a token."""
    roots, first, second = acker.allocate(SPOUT, count), new_edges(count), new_edges(count)
    before = used_memory()
    acker.init(roots, first, quiet=True)
    fresh = used_memory() - before
    acker.ack(roots, first ^ second)
    acked = used_memory() - before
    acker.ack(roots, second)  # which frees it
    return fresh / count, acked / count


def seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start
