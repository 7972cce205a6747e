"""runner.pause() and runner.resume(), with and without tracking."""

from __future__ import annotations

import pytest

from redis_acker import LocalRunner, TopologyBuilder
from redis_acker.errors import BadInput
from redis_acker.spouts.iterable import IterableSpout
from redis_acker.store.spout_states import SpoutStates
from tests.components.store import Store
from tests.topology.parts import Note, run, topology
from tests.waiting import wait_until


@pytest.mark.parametrize("is_tracked", [True, False])
def test_a_paused_spout_starts_when_it_is_resumed(store: Store, is_tracked: bool) -> None:
    note = Note()
    runner = LocalRunner(topology(range(10), note), store.acker if is_tracked else None)
    runner.pause("source")
    with runner:
        assert not runner.wait_until_idle(timeout_s=0.3)
        assert note.values == []
        runner.resume("source")
        assert runner.wait_until_idle(timeout_s=30)
    assert sorted(note.values) == list(range(10))


def test_all_tasks_of_a_spout_pause_or_one_of_them(store: Store) -> None:
    builder = TopologyBuilder("job")
    note = Note()
    builder.spout("source", IterableSpout(range(10)), parallelism=2)
    builder.bolt("note", note).shuffle("source")
    runner = LocalRunner(builder.build(), store.acker)
    runner.pause("source")
    runner.resume("job/source/1")
    with runner:
        wait_until(lambda: len(note.values) == 5)
        runner.resume("source")
        assert runner.wait_until_idle(timeout_s=30)
    assert sorted(note.values) == list(range(10))


def test_another_program_pauses_and_resumes_it(store: Store) -> None:
    """As the command line does. The pause is kept for the next run."""
    states, spout = SpoutStates(store.acker.shards), store.acker.spout_number("job/source/0")
    assert states.pause(spout)
    assert not states.pause(spout)
    note = Note()
    for _ in range(2):
        with LocalRunner(topology(["a"], note), store.acker) as runner:
            assert not runner.wait_until_idle(timeout_s=0.3)
    assert states.resume(spout)
    assert not states.resume(spout)
    run(topology(["a"], note), store)
    assert note.values == ["a"]


def test_an_unknown_spout_is_refused_by_name(store: Store) -> None:
    runner = LocalRunner(topology([], Note()), store.acker)
    with pytest.raises(BadInput, match=r"^This topology has no spout 'orders': it has \['source'\]\.$"):
        runner.pause("orders")
    with pytest.raises(BadInput, match="has no spout 'note'"):
        runner.resume("note")
