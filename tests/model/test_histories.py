"""Random histories against the model, on every backend."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.backends import Backend
from tests.model.history import History

NUMBERS = count()
SEEDS = st.integers(0, (1 << 32) - 1)

calmly = settings(
    deadline=None,
    derandomize=True,
    database=None,
    phases=(Phase.generate, Phase.shrink),
    suppress_health_check=list(HealthCheck),
)


@settings(calmly, max_examples=100)
@given(seed=SEEDS, seeds=st.lists(SEEDS, min_size=20, max_size=40))
def test_random_histories_agree_with_the_model(backend: Backend, namespace: str, seed: int, seeds: list[int]) -> None:
    History(backend, f"{namespace}-{next(NUMBERS)}", seed).run(seeds)
