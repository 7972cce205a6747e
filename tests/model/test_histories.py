"""Random histories against the model, on every backend."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random

import pytest

from tests.backends import Backend
from tests.model.history import History

HISTORIES = {"fake": 60, "redis-7.0": 150, "valkey-9.1": 120, "redis-6.2": 120, "cluster": 50}
FEW_STEPS, MANY_STEPS = 20, 40


def test_random_histories_agree_with_the_model(backend: Backend, namespace: str) -> None:
    run_histories(backend, namespace, range(HISTORIES[backend.kind]))


@pytest.mark.full
def test_more_random_histories_agree_with_the_model(backend: Backend, namespace: str) -> None:
    few = HISTORIES[backend.kind]
    run_histories(backend, namespace, range(few, 2 * few))


def run_histories(backend: Backend, namespace: str, numbers: Iterable[int]) -> None:
    """The same histories in every run, others on every backend."""
    for number in numbers:
        random = Random(f"{backend.kind} {number}")
        seeds = [random.getrandbits(32) for _ in range(random.randint(FEW_STEPS, MANY_STEPS))]

        def run(some_seeds: list[int], log: list[str], number: int = number) -> None:
            History(backend, f"{namespace}-{number}", f"{backend.kind} {number}", log).run(some_seeds)

        try:
            run(seeds, [])
        except Exception as error:
            log: list[str] = []
            try:
                run(shortest(seeds, lambda some_seeds: fails(run, some_seeds)), log)
            except Exception as same:
                raise AssertionError("\n".join([f"History {number}, shortened:", *log, str(same)])) from error
            raise


def fails(run: Callable[[list[int], list[str]], None], seeds: list[int]) -> bool:
    try:
        run(seeds, [])
    except Exception:
        return True
    return False


def shortest(seeds: list[int], still_fails: Callable[[list[int]], bool]) -> list[int]:
    """Leaves out as many steps as it can, first many at once, then one by one."""
    size = len(seeds) // 2
    while size:
        for start in range(0, len(seeds), size):
            shorter = seeds[:start] + seeds[start + size :]
            if still_fails(shorter):
                seeds = shorter
                break
        else:
            size //= 2
    return seeds
