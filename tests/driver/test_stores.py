"""The whole life of messages on every kind of store."""

from __future__ import annotations

from tests.backends import Backend
from tests.driver.test_kills import PLANS
from tests.driver.world import World


def test_messages_complete_fail_time_out_and_die_on_every_store_also_across_a_restart(
    backend: Backend, namespace: str
) -> None:
    shards = {"shards": 5} if backend.is_cluster else {}
    world = World(backend.client(), namespace, PLANS, shards, target=backend.target)
    first = world.new_driver(max_pending=4)
    first.open()
    world.live(first, rounds=2)  # and is killed there
    world.let_lease_run_out()
    second = world.new_driver(max_pending=4)
    second.open()
    world.live(second)
    second.close()
    world.check()
