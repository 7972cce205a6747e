"""Healthy work never dies, at full size: messages that wait for ten timeouts and more are worked on once each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from redis_acker import Acker, LocalRunner, TopologyBuilder
from redis_acker.components.component import ComponentCounters
from redis_acker.spouts.iterable import IterableSpout
from tests.backends import Servers, make_backend
from tests.topology.parts import Watcher
from tests.topology.test_under_load import Slow

TIMEOUT_MS = 2_000
WAIT_MS = 10 * TIMEOUT_MS


@pytest.fixture
def acker(servers: Servers, namespace: str) -> Iterator[Acker]:
    backend = make_backend("redis-7.0", servers)
    with Acker(backend.target, namespace=namespace, timeout_ms=TIMEOUT_MS) as found:
        yield found
    backend.delete_keys(namespace)


@pytest.mark.full
@pytest.mark.parametrize(
    ("messages", "tasks", "takes_ms"),
    [
        (20_500, 1, [1]),
        (10_000, 10, [50]),
        (220, 20, [2_000]),
        (800, 20, [1, 50, 400, 2_000]),
    ],
    ids=["1 ms", "50 ms", "2 s", "a mix"],
)
def test_with_default_options_every_message_is_worked_on_once(
    acker: Acker, messages: int, tasks: int, takes_ms: list[int]
) -> None:
    assert messages * sum(takes_ms) / len(takes_ms) / tasks >= WAIT_MS
    watcher = Watcher()
    builder = TopologyBuilder("job")
    builder.spout("source", IterableSpout(range(messages)))
    builder.bolt("slow", Slow(*takes_ms), parallelism=tasks).shuffle("source")
    with LocalRunner(builder.build(), acker, observer=watcher) as runner:
        assert runner.wait_until_idle(timeout_s=600)
    counters = runner.counters()
    assert counters["slow"] == ComponentCounters(executed=messages, emitted=messages, acked=messages)
    assert counters["source"].acked == messages
    assert (watcher.failed, watcher.letters) == ([], [])
